"""The API server, asked without kubectl: starting a program costs more than what tests ask for by the hundred."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from tests.rig.places import RigError

Thing = dict[str, Any]

_GROUPS = ("v1", "apps/v1", "batch/v1", "coordination.k8s.io/v1", "policy/v1")
"""Where a kind is looked for that is named by one word."""
_NOT_FOUND = 404


@dataclass(frozen=True)
class Resource:
    version: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/{'apis' if '/' in self.version else 'api'}/{self.version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


class Api:
    """As an administrator of the cluster."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self._server = server
        self._context = context
        self._known: dict[str, dict[tuple[str, ...], Resource]] = {}
        """By version, each under all its names."""

    def ask(self, method: str, path: str, body: Thing | None = None, kind: str = "application/json") -> Thing | None:
        """The answer; None where there is no such thing."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind, "User-Agent": "rig"}
        request = urllib.request.Request(self._server + path, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=60) as answer:
                found: Thing = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            if error.code == _NOT_FOUND:
                return None
            raise RigError(f"{method} {path} failed with status {error.code}: {said}") from None

    def get(self, word: str, name: str, namespace: str) -> Thing | None:
        return self.ask("GET", self._named(word).path(namespace, name))

    def items(self, words: str, namespace: str = "", selector: str = "") -> list[Thing]:
        """Those of one or more kinds (`jobs,pods`), each with its kind."""
        found = []
        for word in words.split(","):
            listed = self.ask("GET", f"{self._named(word).path(namespace)}?labelSelector={selector}") or {}
            kind = listed["kind"].removesuffix("List")
            found += [{"kind": kind, **each} for each in listed["items"]]
        return found

    def apply(self, thing: Thing) -> None:
        about = thing["metadata"]
        resource = self._of(thing["apiVersion"], thing["kind"])
        path = resource.path(about.get("namespace", "default"), about["name"])
        how = "fieldManager=rig&force=true&fieldValidation=Strict"
        if self.ask("PATCH", f"{path}?{how}", thing, "application/apply-patch+yaml") is None:
            raise RigError(f"{thing['kind']} {about['name']} cannot be made: there is no namespace for it")

    def delete(self, word: str, name: str, namespace: str = "") -> None:
        """Without waiting for its end; one that is not there is fine."""
        self.ask("DELETE", self._named(word).path(namespace, name))

    def _named(self, word: str) -> Resource:
        for version in _GROUPS:
            for names, resource in self._resources(version).items():
                if word in names:
                    return resource
        raise RigError(f"{word} is none of the kinds in {', '.join(_GROUPS)}")

    def _of(self, version: str, kind: str) -> Resource:
        for _ in range(2):
            found = next((resource for names, resource in self._resources(version).items() if kind in names), None)
            if found:
                return found
            self._known.pop(version)  # A kind may have been made since.
        raise RigError(f"the cluster does not know {kind} of {version}")

    def _resources(self, version: str) -> dict[tuple[str, ...], Resource]:
        if version not in self._known:
            listed = self.ask("GET", f"/{'apis' if '/' in version else 'api'}/{version}") or {"resources": ()}
            self._known[version] = {
                (each["kind"], each["name"], each["singularName"], *each.get("shortNames", ())): Resource(
                    version, each["name"], each["namespaced"]
                )
                for each in listed["resources"]
                if "/" not in each["name"]
            }
        return self._known[version]
