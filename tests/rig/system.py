"""The images every rig has, made of what this machine has installed: no other registry is reachable or needed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.rig import build, images
from tests.rig.places import CACHE, RigError
from tests.rig.processes import run

BUSYBOX = "docker.io/library/busybox:1"
PAUSE = "docker.io/rig/pause:1"
TEST = "docker.io/library/penstock-test:1"
"""Debian's bash, coreutils and Python: what tests run in place of the images that documents name."""

PACKAGES = (
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "libc-bin",
    "procps",
    "python3",
    "sed",
    "tar",
)
_LEFT_OUT = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info", "/usr/share/lintian")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_EMPTY = ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "usr", "usr/bin", "var", "var/tmp")
_IMAGES = CACHE / "images"
"""A place of their own: Docker hosts need some while Kubernetes is still built."""


def standard() -> dict[str, Path]:
    """The images every rig has, by name; made where they are not yet."""
    with build.locked(_IMAGES):
        return {BUSYBOX: _busybox(["sh"], "busybox"), PAUSE: _busybox(["sleep", "2147483647"], "pause"), TEST: _test()}


def _busybox(command: list[str], name: str) -> Path:
    program = Path(shutil.which("busybox") or "/bin/busybox")
    content = program.read_bytes()
    if b"ld-linux" in content[:4096]:
        raise RigError(f"{program} needs libraries that an image does not have: apt-get install -y busybox-static")
    directory = _place(name, content)
    if (directory / "manifest").exists():
        return directory
    layer = _system(("bin",))
    layer.file("bin/busybox", content, 0o755)
    for applet in sorted({*run(program, "--list").split(), "bash"} - {"busybox"}):
        layer.link(f"bin/{applet}", "busybox")
    return images.write(directory, [layer], {"Cmd": command, "Env": [_PATH]})


def _place(name: str, made_of: bytes) -> Path:
    """Where an image is kept: another place when it is made of something else, or in another way."""
    digest = hashlib.sha256(made_of)
    for source in (__file__, images.__file__):
        digest.update(Path(source).read_bytes())
    return _IMAGES / f"{name}-{digest.hexdigest()[:12]}"


def _system(more: Iterable[str] = ()) -> images.Layer:
    layer = images.Layer()
    for path in (*_EMPTY, *more):
        layer.directory(path)
    layer.directory("tmp", 0o1777)
    for path, text in _ACCOUNTS.items():
        layer.file(path, text.encode())
    return layer


def _test() -> Path:
    """Packages of this machine, with those they depend on, as they are installed here."""
    packages = _with_dependencies(PACKAGES)
    versions = json.dumps(sorted(packages.items())).encode()
    directory = _place("penstock-test", versions)
    if (directory / "manifest").exists():
        return directory
    layer = _system()
    for top in sorted(Path("/").iterdir()):
        if top.is_symlink() and str(top.readlink()).startswith("usr/"):
            layer.link(top.name, str(top.readlink()))
    for line in run("dpkg", "-L", *sorted(packages)).splitlines():
        path = Path(line)
        if line.startswith("/") and len(path.parts) > 1 and not line.startswith(_LEFT_OUT):
            real = path.parent.resolve() / path.name
            if os.path.lexists(real) and not (real.is_symlink() and len(real.parts) == 2):
                layer.copy(real)
    layer.link("usr/bin/python", "python3")
    layer.link("usr/bin/awk", "mawk")
    layer.link("usr/bin/sh", "dash")
    return images.write(directory, [layer], {"Cmd": ["bash"], "Env": [_PATH]})


def _with_dependencies(wanted: Iterable[str]) -> dict[str, str]:
    """Installed packages and their versions: these, and what they need."""
    shown = run(
        "dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Status}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    )
    needs: dict[str, list[str]] = {}
    versions: dict[str, str] = {}
    provided: dict[str, str] = {}
    for line in shown.splitlines():
        package, version, status, depends, provides = line.split("\t")
        if status.endswith(" installed"):
            versions[package], needs[package] = version, _package_names(depends)
            provided |= dict.fromkeys(_package_names(provides), package)
    if missing := [name for name in wanted if name not in versions]:
        raise RigError(f"the test image needs packages: apt-get install -y {' '.join(missing)}")
    found: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        package = name if name in versions else provided.get(name, "")
        if package and package not in found:
            found.add(package)
            todo += needs[package]
    return {package: versions[package] for package in found}


def _package_names(relations: str) -> list[str]:
    """Of `libc6 (>= 2.36), awk | mawk:any`."""
    alternatives = [one.split() for all_of in relations.split(",") for one in all_of.split("|")]
    return [words[0].split(":")[0] for words in alternatives if words]
