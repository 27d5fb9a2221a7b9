"""Small disks that are mounted for a test, and what fills them for good: whatever becomes free is taken at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

KINDS = ("tmpfs", "ext4")
FILL = """
# Until whoever started it ends it, or is gone.
import os, sys, time
parent = os.getppid()
ballast = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while os.getppid() == parent:
    try:
        os.write(ballast, bytes(1 << 16))
    except OSError:
        time.sleep(0.0005)
"""


@contextmanager
def small_disk(place: Path, kind: str, megabytes: int) -> Iterator[Path]:
    """Searchable for everyone, and with nothing kept back for root."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a small disk is mounted")
    disk, image = place / "disk", place / "image"
    disk.mkdir(mode=0o711)
    if kind == "ext4":
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, disk], check=True)
        disk.chmod(0o711)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=711", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[Path]:
    """Full, and kept so; with room again afterwards."""
    ballast = disk / "ballast"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", FILL, ballast]) as filler:
        try:
            while free_on(disk):
                pass
            yield ballast
        finally:
            filler.kill()
    ballast.unlink()


def free_on(disk: Path) -> int:
    """Bytes; the last block of ext4 may be one that nobody gets."""
    about = os.statvfs(disk)
    return about.f_bavail * about.f_frsize // 4096 * 4096
