"""The storage classes: directories of this machine, made and removed by local-path-provisioner.

    standard      default; ReadWriteOnce, bound to a node when first used
    shared        ReadWriteMany, bound at once
    rook-cephfs   the same as shared, under the name that documents use
    expandable    as standard; the API accepts a larger size, and `resizer.py` grants it

None of them has a size limit of its own: a directory is as large as the disk.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.rig import resizer, system
from tests.rig.control import Control

NAMESPACE = "local-path-storage"
_PROVISIONER = "rancher.io/local-path"
_BOUND_WHEN_USED = ("standard", resizer.CLASS)
_SHARED = ("shared", "rook-cephfs")


def objects(control: Control) -> list[dict[str, Any]]:
    """What has to be in the cluster before the provisioner starts."""
    scripts = {
        "setup": '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n',
        "teardown": '#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n',
    }
    data = {"config.json": json.dumps(_config(control.directory)), "helperPod.yaml": json.dumps(_helper()), **scripts}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "local-path", "namespace": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "local-path", "namespace": NAMESPACE},
            "data": data,
        },
        *(_class(name) for name in (*_BOUND_WHEN_USED, *_SHARED)),
    ]


def start(control: Control) -> None:
    config, helper = control.directory / "local-path.json", control.directory / "helper.json"
    config.write_text(json.dumps(_config(control.directory)))
    helper.write_text(json.dumps(_helper()))
    control.processes.start(
        "storage",
        control.programs / "local-path-provisioner",
        "start",
        f"--config={config}",
        f"--kubeconfig={control.directory / 'storage.kubeconfig'}",
        f"--helper-image={system.BUSYBOX}",
        f"--helper-pod-file={helper}",
        "--service-account-name=local-path",
        "--configmap-name=local-path",
    )
    kubeconfig = control.directory / "storage.kubeconfig"
    control.processes.start("resizer", sys.executable, "-I", resizer.__file__, kubeconfig)


def _class(name: str) -> dict[str, Any]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"} if name == "standard" else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": default},
        "provisioner": _PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer" if name in _BOUND_WHEN_USED else "Immediate",
        "allowVolumeExpansion": name == resizer.CLASS,
    }


def _config(directory: Path) -> dict[str, Any]:
    disk = directory / "disk"
    on_a_node = [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [str(disk / "local")]}]
    local = {name: {"nodePathMap": on_a_node} for name in _BOUND_WHEN_USED}
    shared = {name: {"sharedFileSystemPath": str(disk / "shared")} for name in _SHARED}
    return {"storageClassConfigs": {**local, **shared}}


def _helper() -> dict[str, Any]:
    container = {"name": "helper-pod", "image": system.BUSYBOX, "imagePullPolicy": "IfNotPresent"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "helper-pod"}, "spec": {"containers": [container]}}
