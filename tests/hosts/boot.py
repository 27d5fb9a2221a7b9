"""The first process of a Docker host: gives it a name, files and a place for sockets of its own, then starts the rest.

Run as `python -m tests.hosts.boot DIRECTORY`, in fresh namespaces. What is asked of it afterwards, and how, is the
same as of a rig's first process: see `tests/rig/holder.py`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.rig.holder import Holder, separate_mounts

OWN_FILES = {"passwd": "/etc/passwd", "srv": "/srv"}
"""What a host has for itself beside what every rig has: in its directory, and where it is seen."""


def main(directory: Path) -> None:
    socket.sethostname(directory.name)
    shutil.rmtree(directory / "own", ignore_errors=True)
    separate_mounts(directory)
    Path("/run/sshd").mkdir(mode=0o755)
    for name, place in OWN_FILES.items():
        subprocess.run(["mount", "--bind", directory / name, place], check=True)
    Holder(directory).serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
