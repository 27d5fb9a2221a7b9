"""What a storage system's own controllers do: makes, enlarges and removes the volumes of the rig's storage classes.

Run as `python provisioner.py KUBECONFIG DIRECTORY`, with nothing but the standard library. A volume is a directory of
this machine, which every node sees; nothing runs in the cluster for it. There is no limit to enlarge, either: what
users see of it, in claim, volume and events, is as with a real one.
"""

from __future__ import annotations

import json
import shutil
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

NAME = "penstock.rig/directory"
EXPANDABLE = "expandable"
OF_A_NODE = ("standard", EXPANDABLE)
"""Made where the first pod that uses them is, and seen only there."""
SHARED = ("shared", "rook-cephfs")

_ASKED = "volume.kubernetes.io/storage-provisioner"
_CHOSEN = "volume.kubernetes.io/selected-node"
_MADE_BY = "pv.kubernetes.io/provisioned-by"
_CLAIMS, _VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
_SEVERAL = {"ReadWriteMany", "ReadOnlyMany"}
_CONFLICT, _NOT_FOUND = 409, 404

Thing = dict[str, Any]


class Refused(Exception):
    """No volume can be made of what was asked for; str() says why."""


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])

    def each(self, path: str) -> Iterator[Thing]:
        """Those there are, then each that changes, until the connection ends."""
        with self.ask("GET", f"{path}?watch=true&timeoutSeconds=3600") as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]

    def patch(self, path: str, change: Thing) -> None:
        self.ask("PATCH", path, change, "application/merge-patch+json").close()

    def create(self, path: str, thing: Thing) -> None:
        """One that is there already is the one of before a restart."""
        try:
            self.ask("POST", path, thing).close()
        except urllib.error.HTTPError as error:
            if error.code != _CONFLICT:
                raise

    def delete(self, path: str) -> None:
        try:
            self.ask("DELETE", path).close()
        except urllib.error.HTTPError as error:
            if error.code != _NOT_FOUND:
                raise

    def ask(self, method: str, path: str, body: Thing | None = None, kind: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind, "User-Agent": "rig-storage"}
        request = urllib.request.Request(self._server + path, method=method, data=data, headers=headers)
        return urllib.request.urlopen(request, context=self._context)


class Provisioner:
    def __init__(self, api: Api, disk: Path) -> None:
        self._api = api
        self._disk = disk
        self._answered: set[str] = set()
        """Claims by their uid: each has its volume, or was told once why not."""

    def serve(self) -> None:
        for path, do in ((_CLAIMS, self._answer), (_VOLUMES, self._clear)):
            threading.Thread(target=self._follow, args=(path, do)).start()

    def _follow(self, path: str, do: Callable[[Thing], None]) -> None:
        while True:
            try:
                for thing in self._api.each(path):
                    self._do(do, thing)
            except (OSError, HTTPException, ValueError) as error:
                print(error, flush=True)
                time.sleep(0.5)

    def _do(self, do: Callable[[Thing], None], thing: Thing) -> None:
        try:
            do(thing)
        except urllib.error.HTTPError as error:  # its namespace is being deleted, or it is gone
            print(f"{thing['metadata']['name']}: {error}: {error.read().decode(errors='replace')}", flush=True)

    # Claims

    def _answer(self, claim: Thing) -> None:
        asked = claim["metadata"].get("annotations", {})
        if asked.get(_ASKED) != NAME or "deletionTimestamp" in claim["metadata"]:
            return
        if claim["status"].get("phase") == "Bound":
            self._enlarge(claim)
        elif not claim["spec"].get("volumeName") and claim["metadata"]["uid"] not in self._answered:
            self._provision(claim, asked.get(_CHOSEN))

    def _provision(self, claim: Thing, node: str | None) -> None:
        kind = claim["spec"]["storageClassName"]
        if kind in OF_A_NODE and node is None:
            return  # The scheduler names one once a pod wants it.
        about = claim["metadata"]
        self._say(claim, "Provisioning", f"makes a directory for {about['namespace']}/{about['name']}")
        try:
            volume = self._volume(claim, kind, node)
        except Refused as error:
            self._say(claim, "ProvisioningFailed", str(error), "Warning")
            self._answered.add(about["uid"])
            return
        place = Path(volume["spec"]["hostPath"]["path"])
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)
        self._api.create(_VOLUMES, volume)
        self._answered.add(about["uid"])
        self._say(claim, "ProvisioningSucceeded", f"made {volume['metadata']['name']}")

    def _volume(self, claim: Thing, kind: str, node: str | None) -> Thing:
        if kind not in (*OF_A_NODE, *SHARED):
            raise Refused(f"{kind} is no storage class of this provisioner")
        if kind in OF_A_NODE and _SEVERAL.intersection(claim["spec"]["accessModes"]):
            raise Refused(f"{kind} is for one node: only ReadWriteOnce and ReadWriteOncePod can be had")
        about = claim["metadata"]
        name = f"pvc-{about['uid']}"
        inside = self._disk / ("local" if kind in OF_A_NODE else "shared")
        hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        seen = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}}}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {_MADE_BY: NAME}},
            "spec": {
                "accessModes": claim["spec"]["accessModes"],
                "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
                "claimRef": _reference(claim),
                "hostPath": {"path": str(inside / f"{name}_{about['namespace']}_{about['name']}")},
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": kind,
                "volumeMode": claim["spec"].get("volumeMode", "Filesystem"),
                **(seen if kind in OF_A_NODE else {}),
            },
        }

    def _enlarge(self, claim: Thing) -> None:
        spec, granted = claim["spec"], claim["status"].get("capacity", {}).get("storage")
        wanted = spec["resources"]["requests"]["storage"]
        if spec["storageClassName"] != EXPANDABLE or granted in (None, wanted):
            return
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        capacity = {"capacity": {"storage": wanted}}
        self._api.patch(f"{_VOLUMES}/{spec['volumeName']}", {"spec": capacity})
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self._api.patch(f"{claims}/{name}/status", {"status": capacity})

    def _say(self, claim: Thing, reason: str, message: str, kind: str = "Normal") -> None:
        about, now = claim["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"generateName": f"{about['name'][:200]}.", "namespace": about["namespace"]},
            "involvedObject": _reference(claim),
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": NAME},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._api.create(f"/api/v1/namespaces/{about['namespace']}/events", event)

    # Volumes

    def _clear(self, volume: Thing) -> None:
        """One whose claim is gone."""
        ours = volume["metadata"].get("annotations", {}).get(_MADE_BY) == NAME
        if ours and volume["status"].get("phase") == "Released" and "deletionTimestamp" not in volume["metadata"]:
            shutil.rmtree(volume["spec"]["hostPath"]["path"], ignore_errors=True)
            self._api.delete(f"{_VOLUMES}/{volume['metadata']['name']}")


def _reference(claim: Thing) -> Thing:
    about = {key: claim["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **about}


if __name__ == "__main__":
    Provisioner(Api(Path(sys.argv[1])), Path(sys.argv[2])).serve()
