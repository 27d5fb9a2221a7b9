"""What is on an engine's disk once it has loaded images: laid there before it starts, it need not load them again."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.hosts import archives, programs
from tests.rig import build
from tests.rig.places import CACHE, RigError
from tests.rig.processes import run

_STOCKS = CACHE / "engines"
_PARTS = ("image", "overlay2")


def lay(images: Mapping[str, Path], data: Path) -> bool:
    """Link them into an engine's directory: nothing ever writes into a layer. False where they are to be loaded."""
    stock = _place(images)
    if not stock.exists():
        return False
    try:
        run("cp", "-a", "--link", *(stock / part for part in _PARTS), data)
    except RigError:  # another file system
        for part in _PARTS:
            shutil.rmtree(data / part, ignore_errors=True)
        return False
    return True


def keep(images: Mapping[str, Path], data: Path) -> None:
    """Keep what an engine has that has just loaded them and done nothing else."""
    stock = _place(images)
    if not all((data / part).is_dir() for part in _PARTS):
        return  # another way to store layers
    with build.locked(_STOCKS):
        if not stock.exists():
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=_STOCKS))
            run("cp", "-a", *(data / part for part in _PARTS), new)
            new.rename(stock)


def _place(images: Mapping[str, Path]) -> Path:
    named = sorted(f"{name} {archives.identity(image)}" for name, image in images.items())
    what = [run(programs.DOCKERD, "--version"), *named]
    return _STOCKS / hashlib.sha256("\n".join(what).encode()).hexdigest()[:12]
