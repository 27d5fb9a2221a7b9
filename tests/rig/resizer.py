"""What a storage system's own resizer does, for the class `expandable`: grants every larger size, at once.

Run as `python resizer.py KUBECONFIG`, with nothing but the standard library. The volumes are directories without a
limit, so that there is nothing to enlarge; what users see of it, in claim and volume, is as with a real one.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

CLASS = "expandable"


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])

    def claims(self) -> Iterator[dict[str, Any]]:
        """Those there are, then each that changes, until the connection ends."""
        with self._ask("GET", "/api/v1/persistentvolumeclaims?watch=true&timeoutSeconds=3600") as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]

    def patch(self, path: str, change: dict[str, Any]) -> None:
        self._ask("PATCH", path, change).close()

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/merge-patch+json", "User-Agent": "rig-resizer"}
        request = urllib.request.Request(self._server + path, method=method, data=data, headers=headers)
        return urllib.request.urlopen(request, context=self._context)


def grant(api: Api, claim: dict[str, Any]) -> None:
    spec, status = claim["spec"], claim.get("status", {})
    wanted = spec["resources"]["requests"]["storage"]
    granted = status.get("capacity", {}).get("storage")
    if spec.get("storageClassName") != CLASS or status.get("phase") != "Bound" or granted in (None, wanted):
        return
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    capacity = {"capacity": {"storage": wanted}}
    api.patch(f"/api/v1/persistentvolumes/{spec['volumeName']}", {"spec": capacity})
    api.patch(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status", {"status": capacity})


def main(kubeconfig: Path) -> None:
    api = Api(kubeconfig)
    while True:
        try:
            for claim in api.claims():
                grant(api, claim)
        except (OSError, HTTPException, ValueError) as error:
            print(error, flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
