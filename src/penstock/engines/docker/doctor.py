"""Check for `penstock doctor` whether the Docker hosts answer, fit, and keep limits."""

from __future__ import annotations

import shutil

from penstock.engines.docker.api.client import FIRST
from penstock.engines.docker.helpers import FIX
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
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
    if not link.answers:
        return []
    name, found = link.host.name, []

    def fails(what: str, detail: str, fix: str | None = None, *, required: bool = False) -> None:
        found.append(Check(name=f"{what} of {name}", node=name, ok=False, detail=detail, fix=fix, required=required))

    if link.api.version < FIRST:
        said = f"Docker {link.info.get('ServerVersion')} on {name} is older than 20.10"
        fails("version", said, "install a newer Docker", required=True)
    lacking = [word for key, word in (("MemoryLimit", "memory"), ("CpuCfsQuota", "CPUs")) if not link.info.get(key)]
    if lacking:
        fails("limits", f"{name} cannot limit {' and '.join(lacking)}")
    if link.space.full:
        fails("disk", f"{name} {link.space.full}", FIX, required=True)
    if link.probe.gpu_trouble:
        said = f"nvidia-smi does not show the GPUs of {name}: {link.probe.gpu_trouble}"
        fix = "`docker run --gpus all IMAGE nvidia-smi` must work there; IMAGE is docker_helper_image, and needs glibc"
        fails("GPUs", said, fix)
    if not link.info.get("LiveRestoreEnabled"):
        said = f"live-restore is off on {name}: a restart of Docker ends what runs there"
        fails("live-restore", said, '"live-restore": true in /etc/docker/daemon.json')
    return found
