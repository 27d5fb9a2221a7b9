"""The name of a rig, the slot it claims, and every path and address derived from the two."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STATE = Path("/var/lib/penstock-rig")
"""A directory for each rig there is, and the locks."""

CACHE = Path(os.environ.get("RIG_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "penstock", "rig"))
CACHE = CACHE.expanduser().absolute()
"""What is built once and used by every rig: programs and images."""
os.environ["RIG_CACHE"] = str(CACHE)  # The tests drop XDG_*; their workers must still find the same place.

OTHER_VERSION = os.environ.get("RIG_KUBERNETES") or ""
"""Of Kubernetes, in place of the pinned one; see `versions.py`."""
if OTHER_VERSION and not re.fullmatch(r"1\.\d+\.\d+", OTHER_VERSION):
    raise SystemExit(f"RIG_KUBERNETES is a version like 1.30.4, not {OTHER_VERSION!r}")

DEFAULT_NAME = f"penstock-{OTHER_VERSION.replace('.', '-')}" if OTHER_VERSION else "penstock"
HOSTS = "hosts-"
"""What the names of Docker hosts (`tests/hosts`) begin with: they have slots among those of rigs."""

SLOTS = range(16)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,23}")


class RigError(Exception):
    """The rig cannot do what was asked; str() says why, and what helps."""


class ComponentEnded(RigError):
    """One that should run does not: nothing is worth waiting for."""


@dataclass(frozen=True)
class Addresses:
    """10.(208 + slot).0.0/16, divided: machines, pods of each node, services."""

    slot: int

    @property
    def prefix(self) -> str:
        return f"10.{208 + self.slot}"

    @property
    def control(self) -> str:
        """Where the API server, DNS and the registry listen."""
        return f"{self.prefix}.0.1"

    @property
    def host(self) -> str:
        """This machine, as the rig sees it: a test's own server is reached here."""
        return f"{self.prefix}.0.2"

    def node(self, number: int) -> str:
        return f"{self.prefix}.0.{10 + number}"

    def pods(self, number: int) -> str:
        return f"{self.prefix}.{16 + number}.0/24"

    @property
    def all_pods(self) -> str:
        return f"{self.prefix}.16.0/20"

    @property
    def services(self) -> str:
        return f"{self.prefix}.128.0/17"

    @property
    def first_service(self) -> str:
        """The API server's service takes the first address."""
        return f"{self.prefix}.128.1"

    @property
    def link(self) -> str:
        """This machine's end of the cable to the rig."""
        return f"prig{self.slot}"


def home(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise RigError(f"{name!r} is no name for a rig: a small letter first, then small letters, digits and -, ≤ 24")
    return STATE / name


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One at a time, of all that bring the rig of this name up or down."""
    with _held(_lock(name), fcntl.LOCK_EX):
        yield


@contextmanager
def used(name: str) -> Iterator[None]:
    """Say that a rig is in use, for as long as the block and this process last."""
    with _held(_users(name), fcntl.LOCK_SH):
        yield


@contextmanager
def unused(name: str) -> Iterator[bool]:
    """Whether nobody says that a rig is in use; if so, nobody can until the block ends."""
    try:
        with _held(_users(name), fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield True
            if not home(name).exists():
                _users(name).unlink()
    except BlockingIOError:
        yield False


@contextmanager
def _held(path: Path, how: int) -> Iterator[None]:
    """A file lock. The file may be removed by whoever holds it: one that was is not the lock any more."""
    while True:
        STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_RDONLY if path == STATE else os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # The directory went between the two lines, with the last rig.
        try:
            fcntl.flock(file, how)
            try:
                is_it = os.path.samestat(os.fstat(file), path.stat())
            except FileNotFoundError:
                is_it = False
            if is_it:
                yield
                return
        finally:
            os.close(file)


def _lock(name: str) -> Path:
    return STATE / f".{name}.lock"


def _users(name: str) -> Path:
    return STATE / f".{name}.users"


def claim(name: str) -> Addresses:
    """The addresses of the rig of this name: those it has, or the first free ones. Makes its directory."""
    directory = home(name)
    with _held(STATE, fcntl.LOCK_EX):
        if (mine := _slot(directory)) is not None:
            return Addresses(mine)
        taken = {_slot(other) for other in STATE.iterdir() if other.is_dir()}
        routed = _routed()
        for slot in SLOTS:
            if slot not in taken and not any(route.startswith(Addresses(slot).prefix + ".") for route in routed):
                directory.mkdir(mode=0o755, exist_ok=True)
                (directory / "slot").write_text(str(slot))
                return Addresses(slot)
    raise RigError(f"all {len(SLOTS)} rigs this machine has addresses for are up: end one (ls {STATE})")


def claimed(name: str) -> Addresses | None:
    slot = _slot(home(name))
    return None if slot is None else Addresses(slot)


def release(name: str) -> None:
    """Give back the slot and remove every file of the rig, the slot last. To be called with it locked."""
    directory = home(name)
    for entry in directory.iterdir() if directory.exists() else ():
        if entry.name == "slot":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    with _held(STATE, fcntl.LOCK_EX):
        (directory / "slot").unlink(missing_ok=True)
        if directory.exists():
            directory.rmdir()


def forget(name: str) -> None:
    """Remove the locks of a rig that is no more. To be called with it locked, as the last."""
    with unused(name):
        pass
    with _held(STATE, fcntl.LOCK_EX):
        _lock(name).unlink()
        if not any(STATE.iterdir()):
            STATE.rmdir()


def names() -> list[str]:
    """Of the rigs that are up, or were and left something."""
    return sorted(path.name for path in STATE.iterdir() if path.is_dir()) if STATE.exists() else []


def _slot(directory: Path) -> int | None:
    try:
        return int((directory / "slot").read_text())
    except (FileNotFoundError, ValueError):
        return None


def _routed() -> list[str]:
    """Where this machine already knows a way to."""
    shown = subprocess.run(["ip", "-j", "-4", "route"], capture_output=True, text=True, check=True)
    return [route["dst"] for route in json.loads(shown.stdout or "[]")]
