"""The rig with another version of Kubernetes: `RIG_KUBERNETES=1.30.4` before any command that uses it.

An older version brings its own nodes, since a kubelet must not be newer than the API server. A newer one keeps those of
the pinned version: kubelets from 1.35 on refuse cgroup v1 and the containerd of Debian 12. All else is the pinned
version's. Go's checksum database vouches for what `programs/go.sum` does not list.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from tests.rig import build
from tests.rig.places import CACHE, OTHER_VERSION, RigError
from tests.rig.processes import run

VERSION = OTHER_VERSION or build.KUBERNETES

_CONTROL = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_NODE = ("kubelet", "kube-proxy")


def directory() -> Path:
    """Where the programs of a rig are, or will be."""
    pinned = build.directory()
    return CACHE / f"{VERSION}-with-{pinned.parent.name}" / "bin" if OTHER_VERSION else pinned


def missing() -> list[str]:
    return [name for name in build.PROGRAMS if not (directory() / name).exists()]


def build_all() -> Path:
    """Build what is missing; the directory with all of it."""
    pinned, into = build.build(), directory()
    with build.locked():
        if not missing():
            return into
        print(f"Building Kubernetes {VERSION} into {into}: minutes, the first time", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=".new-") as module:
            Path(module, "go.mod").write_text(_module())
            build.build_version(VERSION, Path(module), programs_of(VERSION), into)
        for name in missing():
            (into / name).symlink_to(pinned / name)
    return into


def programs_of(version: str) -> tuple[str, ...]:
    """Those it brings itself."""
    return _CONTROL + _NODE if _minor(version) < _minor(build.KUBERNETES) else _CONTROL


def _module() -> str:
    """Of the published Kubernetes: the libraries it has in its own tree are published beside it, as 0.x.y."""
    said = run(build.find_go(), "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}")
    theirs = Path(json.loads(said)["GoMod"]).read_text()
    needs_go = re.search(r"^go .*$", theirs, re.MULTILINE)
    libraries = re.findall(r"^\s*(\S+) => \./staging/", theirs, re.MULTILINE)
    if not needs_go or not libraries:
        raise RigError(f"the go.mod of Kubernetes {VERSION} is not as those known here")
    libraries_version = "v0." + VERSION.partition(".")[2]
    return "\n".join(
        [
            "module penstock.rig",
            needs_go[0],
            f"require k8s.io/kubernetes v{VERSION}",
            *(f"replace {library} => {library} {libraries_version}" for library in libraries),
        ]
    )


def _minor(version: str) -> int:
    return int(version.split(".")[1])
