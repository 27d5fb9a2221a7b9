"""Checks of `penstock doctor`: do the Docker hosts answer, fit, and keep limits?"""

from __future__ import annotations

import shutil

from penstock.engines.docker.api.client import FIRST
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.space import FIX
from penstock.settings import Settings
from penstock.wire.server import Check


def all_checks(hosts: DockerHosts, settings: Settings) -> list[Check]:
    nodes = hosts.nodes()
    if not nodes:
        said = "no Docker host is registered"
        return [Check(name="nodes", ok=False, detail=said, fix="an admin applies a document of the kind Node")]
    there = {link.host.name: link for link in hosts.links()}
    found = [_reached(node.name, node.message if not node.ready else None, there.get(node.name)) for node in nodes]
    found += [check for link in there.values() for check in _fits(link)]
    if any(node.address.startswith("ssh://") for node in nodes):
        ssh = shutil.which("ssh")
        found.append(Check(name="ssh", ok=bool(ssh), detail=ssh or "not installed", fix="apt install openssh-client"))
    return found


def _reached(name: str, message: str | None, link: HostLink | None) -> Check:
    if message or link is None:
        return Check(name=f"node {name}", node=name, ok=False, detail=message or "not reached", required=False)
    version = link.info.get("ServerVersion", "")
    return Check(name=f"node {name}", node=name, ok=True, detail=f"Docker {version} answers")


def _fits(link: HostLink) -> list[Check]:
    if not link.looked.is_set():
        return []
    found = []
    if link.api.version < FIRST:
        said = f"Docker {link.info.get('ServerVersion')} on {link.host.name} is older than 20.10"
        found.append(
            Check(
                name=f"version of {link.host.name}",
                node=link.host.name,
                ok=False,
                detail=said,
                fix="install a newer Docker",
            )
        )
    lacking = [word for key, word in (("MemoryLimit", "memory"), ("CpuCfsQuota", "CPUs")) if not link.info.get(key)]
    if lacking:
        said = f"{link.host.name} cannot limit {' and '.join(lacking)}"
        found.append(
            Check(name=f"limits of {link.host.name}", node=link.host.name, ok=False, detail=said, required=False)
        )
    if link.space.full:
        said = f"{link.host.name} {link.space.full}"
        found.append(Check(name=f"disk of {link.host.name}", node=link.host.name, ok=False, detail=said, fix=FIX))
    if link.probe.gpu_trouble:
        said = f"nvidia-smi does not show the GPUs of {link.host.name}: {link.probe.gpu_trouble}"
        fix = "`docker run --gpus all IMAGE nvidia-smi` must work there; IMAGE is docker_helper_image, and needs glibc"
        found.append(
            Check(name=f"GPUs of {link.host.name}", node=link.host.name, ok=False, detail=said, fix=fix, required=False)
        )
    if not link.info.get("LiveRestoreEnabled"):
        said = f"live-restore is off on {link.host.name}: a restart of Docker ends what runs there"
        fix = '"live-restore": true in /etc/docker/daemon.json'
        found.append(
            Check(
                name=f"live-restore of {link.host.name}",
                node=link.host.name,
                ok=False,
                detail=said,
                fix=fix,
                required=False,
            )
        )
    return found
