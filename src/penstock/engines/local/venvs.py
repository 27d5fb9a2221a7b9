"""The caller's virtual environment inside a job: read-only at its own path, with a writable layer of the job's own.

`setup` may `pip install`: that goes to the layer in the job's HOME and is gone with it. The layer sees what the
caller's environment has, so nothing is fetched twice; and through PYTHONPATH the caller's own scripts see the layer.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from penstock.engines.local.sandbox import Bind, in_system
from penstock.engines.local.scripts import DEFAULT_PATH

LAYER = ".penstock-venv"
CONFIG_LIMIT = 65536


@dataclass(frozen=True)
class Venv:
    path: Path
    home: str
    """Where the base interpreter is: `home` of pyvenv.cfg."""
    version: str
    """`python3.11`: the name of the directory that has site-packages."""
    system_packages: bool

    @property
    def interpreter(self) -> str:
        plain = Path(self.home) / "python3"
        return str(plain if plain.exists() else plain.with_name(self.version))

    @property
    def site_packages(self) -> Path:
        return self.path / "lib" / self.version / "site-packages"


def read_venv(path: Path) -> Venv | None:
    """None if there is no usable environment at the path."""
    config = _config(path / "pyvenv.cfg")
    home = config.get("home", "")
    versions = sorted(entry.name for entry in path.glob("lib/python3.*") if (entry / "site-packages").is_dir())
    if not home.startswith("/") or not versions:
        return None
    return Venv(path, home, versions[-1], config.get("include-system-site-packages", "").lower() == "true")


def _config(path: Path) -> dict[str, str]:
    """The file is a user's and we may be root: read no device and no pipe, and not without end."""
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


def binds(venv: Venv) -> list[Bind]:
    """The environment and the installation its interpreter belongs to, as written and as links lead to it."""
    real = os.path.realpath(venv.interpreter)
    prefixes = {str(Path(venv.home).parent), str(Path(real).parent.parent)}
    found = [Bind(str(venv.path), str(venv.path), "--ro-bind")]
    for prefix in sorted(prefixes):
        if not in_system(prefix):
            found += [Bind(part, part, "--ro-bind-try") for part in _parts(prefix)]
    return found


def _parts(prefix: str) -> list[str]:
    """The whole installation; but an interpreter in ~/bin must not bring the whole home with it."""
    wide = len(Path(prefix).parts) <= 3 and Path(prefix).parts[1:2] in ((), ("home",), ("root",))
    return [f"{prefix}/{part}".replace("//", "/") for part in ("bin", "lib", "lib64")] if wide else [prefix]


def environment(venv: Venv, home: str) -> dict[str, str]:
    layer = f"{home}/{LAYER}"
    return {
        "VIRTUAL_ENV": layer,
        "PATH": f"{layer}/bin:{venv.path}/bin:{DEFAULT_PATH}",
        "PYTHONPATH": f"{layer}/lib/{venv.version}/site-packages",
    }


def write_layer(venv: Venv, home_dir: Path, home: str) -> list[Path]:
    """Make the layer in a job's still unused HOME; returns what was made, for its owner to be set."""
    layer = home_dir / LAYER
    packages = layer / "lib" / venv.version / "site-packages"
    packages.mkdir(parents=True)
    (layer / "bin").mkdir()
    flag = str(venv.system_packages).lower()
    (layer / "pyvenv.cfg").write_text(f"home = {venv.home}\ninclude-system-site-packages = {flag}\n")
    (packages / "penstock.pth").write_text(f"import site; site.addsitedir({str(venv.site_packages)!r})\n")
    for name in ("python", "python3", venv.version):
        (layer / "bin" / name).symlink_to(venv.interpreter)
    for name in ("pip", "pip3"):
        script = layer / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {home}/{LAYER}/bin/python -m pip "$@"\n')
        script.chmod(0o755)
    return [layer, *layer.rglob("*")]
