"""What must be installed for Docker hosts, and why they cannot be had where it is not."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from tests.rig import cgroups

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where packages put programs: another `docker` may come first in PATH."""


def _installed(name: str) -> Path:
    return Path(shutil.which(name, path=_PATH) or f"/usr/sbin/{name}")


DOCKER = _installed("docker")
DOCKERD = _installed("dockerd")
REGISTRY = _installed("docker-registry")
SSHD = _installed("sshd")

_FILES = {DOCKER: "docker.io", DOCKERD: "docker.io", REGISTRY: "docker-registry", SSHD: "openssh-server"}
_COMMANDS = {
    "busybox": "busybox-static",
    "containerd": "containerd",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "ssh": "openssh-client",
    "sysctl": "procps",
}


@functools.cache
def fault() -> str | None:
    """Why no Docker host can be brought up here."""
    what = "Docker hosts for tests need"
    if os.geteuid() != 0:
        return f"{what} root"
    if not shutil.which("dpkg-query"):
        return f"{what} Debian or Ubuntu, whose packages their images are made of"
    packages = {package for command, package in _COMMANDS.items() if not shutil.which(command)}
    packages |= {package for file, package in _FILES.items() if not file.exists()}
    if packages:
        return f"{what}: apt-get install -y {' '.join(sorted(packages))}"
    tried = subprocess.run(["unshare", "--fork", "--pid", "--mount", "--net", "true"], capture_output=True, text=True)
    if tried.returncode:
        return f"{what} namespaces, which cannot be made here: {tried.stderr.strip()}"
    if read_only := cgroups.read_only():
        return f"{what} cgroups, which cannot be made here: {read_only} is read-only"
    return None
