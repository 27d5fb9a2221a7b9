"""The storage classes: directories of this machine, made, enlarged and removed by `provisioner.py`.

    standard      default; ReadWriteOnce, bound to a node when first used
    shared        ReadWriteMany, bound at once
    rook-cephfs   the same as shared, under the name that documents use
    expandable    as standard; a larger size is granted at once

None of them has a size limit of its own: a directory is as large as the disk.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.rig import provisioner
from tests.rig.control import Control


def objects() -> list[dict[str, Any]]:
    return [_class(name) for name in (*provisioner.OF_A_NODE, *provisioner.SHARED)]


def start(control: Control) -> None:
    kubeconfig, disk = control.directory / "storage.kubeconfig", control.directory / "disk"
    control.processes.start("storage", sys.executable, "-I", provisioner.__file__, kubeconfig, disk)


def _class(name: str) -> dict[str, Any]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"} if name == "standard" else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": default},
        "provisioner": provisioner.NAME,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer" if name in provisioner.OF_A_NODE else "Immediate",
        "allowVolumeExpansion": name == provisioner.EXPANDABLE,
    }
