"""What is on a host's disk when it is turned on for the first time."""

from __future__ import annotations

import grp
import os
from pathlib import Path
from typing import Any

from tests.hosts.keys import USER, Keys
from tests.rig.node import OVERLAY
from tests.rig.processes import run

_USER_ID = 61000


def make(home: Path, resolver: str) -> None:
    for directory in ("data", "log", "srv", "user"):
        (home / directory).mkdir(parents=True)
    group = grp.getgrnam("docker").gr_gid
    os.chown(home / "user", _USER_ID, group)
    user = f"{USER}:*:{_USER_ID}:{group}::{home}/user:/bin/sh\n"
    (home / "passwd").write_text(Path("/etc/passwd").read_text() + user)
    (home / "resolv.conf").write_text(f"nameserver {resolver}\n")


def engine(home: Path, listens: list[str], cgroup: str) -> dict[str, Any]:
    """The engine's configuration, but for who may use it."""
    lies_on = int(run("stat", "-f", "-c", "%t", home), 16)
    return {
        "hosts": listens,
        "tlsverify": True,
        "data-root": str(home / "data"),
        "exec-root": "/run/docker",
        "pidfile": "/run/docker.pid",
        "storage-driver": "vfs" if lies_on == OVERLAY else "overlay2",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": cgroup,
    }


def sshd(keys: Keys, name: str, address: str) -> str:
    """The ssh server's. Who logs in finds Docker's command line as packages install it, whatever else is in PATH."""
    return "\n".join(
        [
            f"ListenAddress {address}",
            f"HostKey {keys.host_key(name)}",
            f"AuthorizedKeysFile {keys.user_key}.pub",
            f"AllowUsers {USER}",
            "PasswordAuthentication no",
            "PidFile none",
            "SetEnv PATH=/usr/bin:/bin",
            "StrictModes no",
            "UsePAM no\n",
        ]
    )
