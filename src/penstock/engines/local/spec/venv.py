"""Show a job the caller's virtual environment, read-only at its own path, with a writable layer over it.

`setup` may `pip install`: that goes to the layer in the job's HOME and is gone with it. The layer sees what the
caller's environment has, so nothing is fetched twice; and through PYTHONPATH the caller's own scripts see the layer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path

from penstock.engines.local.spec.identity import Identity, with_rights_of
from penstock.engines.local.spec.sandbox import BindMount, in_system, within
from penstock.engines.local.spec.script import DEFAULT_PATH
from penstock.engines.local.supervisor.directories import Entry

LAYER = ".penstock-venv"
CONFIG_LIMIT = 65536
NEVER = ("/", "/var", "/home", "/tmp", "/var/tmp")  # noqa: S108
"""Directories that are never shown as part of an environment, though what is below them may be."""
NOTHING_BELOW = ("/run", "/proc", "/sys", "/dev")


@dataclass(frozen=True)
class Venv:
    path: Path
    home: str
    """The directory of the base interpreter: `home` of pyvenv.cfg."""
    version: str
    """The name of the directory that has site-packages, such as `python3.11`."""
    system_packages: bool
    interpreter: str
    binds: list[BindMount]
    """The environment, and what its interpreter needs, as written and as links lead to it."""

    @property
    def site_packages(self) -> Path:
        return self.path / "lib" / self.version / "site-packages"


def read_venv(path: Path, private: Sequence[str], who: Identity) -> Venv | None:
    """Return the environment; None if the account itself could not use it, or it contains what is not for jobs."""
    try:
        return with_rights_of(who, lambda: _read(path, private))
    except (OSError, BrokenExecutor):
        return None


def _read(path: Path, private: Sequence[str]) -> Venv | None:
    config = _config(path / "pyvenv.cfg")
    home = config.get("home", "")
    versions = sorted(entry.name for entry in path.glob("lib/python3.*") if (entry / "site-packages").is_dir())
    if not home.startswith("/") or not versions:
        return None
    plain = Path(home) / "python3"
    interpreter = plain if plain.exists() else plain.with_name(versions[-1])
    binds = [_bind(part) for part in (path, *_parts_of(interpreter, versions[-1]))]
    if not all(_may_be_shown(shown, private) for bind in binds for shown in (bind.source, bind.dest)):
        return None
    if not interpreter.exists():  # then nothing that lies around it comes along
        del binds[1:]
    packages = config.get("include-system-site-packages", "").lower() == "true"
    return Venv(path, home, versions[-1], packages, str(interpreter), binds)


def _may_be_shown(path: str, private: Sequence[str]) -> bool:
    if path in NEVER or any(within(path, top) for top in NOTHING_BELOW):
        return False
    return not any(within(path, own) or within(own, path) for own in private)


def _config(path: Path) -> dict[str, str]:
    """Read pyvenv.cfg. It is a user's file and we may be root: read no device and no pipe, and not without end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return {}
        text = os.read(fd, CONFIG_LIMIT).decode(errors="replace")
    finally:
        os.close(fd)
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs if value.strip()}


def _parts_of(interpreter: Path, version: str) -> list[Path]:
    places = sorted({interpreter.parent, Path(os.path.realpath(interpreter)).parent})
    parts = [part for place in places for part in _parts(place, version)]
    return [part for part in parts if not in_system(str(part)) and part.exists()]


def _bind(path: Path) -> BindMount:
    """Bind what the links lead to now, and nothing that somebody may make them lead to later."""
    return BindMount(os.path.realpath(path), str(path), "--ro-bind", below="/")


def _parts(place: Path, version: str) -> list[Path]:
    """List Python's own files in the installation, not all there is: an interpreter in ~/.local/bin must not bring the
    whole of ~/.local with it. Conda's has OpenSSL and the like beside it."""
    if place.name != "bin":
        return [place / "python3", place / version]
    prefix = place.parent
    libraries = [prefix / "lib" / f"lib{version}.so{end}" for end in ("", ".1.0")]
    own = [prefix / "lib" / version, prefix / "lib64" / version, *libraries]
    return [place, prefix / "include" / version, *([prefix / "lib"] if (prefix / "conda-meta").is_dir() else own)]


def environment(venv: Venv, home: str) -> dict[str, str]:
    layer = f"{home}/{LAYER}"
    return {
        "VIRTUAL_ENV": layer,
        "PATH": f"{layer}/bin:{venv.path}/bin:{DEFAULT_PATH}",
        "PYTHONPATH": f"{layer}/lib/{venv.version}/site-packages",
    }


def layer(venv: Venv, home: str) -> list[Entry]:
    """List the files of the layer for a job's HOME, whose path inside is `home`."""
    packages = f"lib/{venv.version}/site-packages"
    flag = str(venv.system_packages).lower()
    config = f"home = {venv.home}\ninclude-system-site-packages = {flag}\n"
    path_file = f"import site; site.addsitedir({str(venv.site_packages)!r})\n"
    pip = f'#!/bin/sh\nexec {home}/{LAYER}/bin/python -m pip "$@"\n'
    inside: list[Entry] = [
        *((name, 0o755, None) for name in ("bin", "lib", f"lib/{venv.version}", packages)),
        ("pyvenv.cfg", 0o644, config.encode(errors="surrogateescape")),
        (f"{packages}/penstock.pth", 0o644, path_file.encode(errors="surrogateescape")),
        *((f"bin/{name}", 0o777, venv.interpreter) for name in ("python", "python3", venv.version)),
        *((f"bin/{name}", 0o755, pip.encode()) for name in ("pip", "pip3")),
    ]
    return [(LAYER, 0o755, None), *((f"{LAYER}/{name}", mode, content) for name, mode, content in inside)]
