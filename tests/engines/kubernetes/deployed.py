"""The account and the rights of deploy/kubernetes in a cluster, under names of their own so that several stand beside
each other."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.settings import Settings
from tests.rig.cluster import Rig

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
RIGHTS = (
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


ROLE = "penstock-in-namespace"


@dataclass(frozen=True)
class Deployed:
    rig: Rig
    kubeconfig: Path
    """With the rights of the server's account and no others."""
    jobs: str
    """The namespace its jobs are in."""
    server: str
    """The namespace the server would be in."""
    exporters: str
    """The namespace NVIDIA's exporter would be in; it is there if its overlay is."""

    @property
    def chosen(self) -> dict[str, str]:
        """Settings of a server with these rights."""
        return {
            "engine": "kubernetes",
            "kubernetes_config": str(self.kubeconfig),
            "kubernetes_namespace": self.jobs,
            "kubernetes_image": "penstock-test:1",
            "kubernetes_kubelet_account": f"{self.server}/penstock-nodes",
            "default_cpus": "50m",
        }

    @property
    def role(self) -> str:
        """The ClusterRole for each namespace that it makes."""
        return f"{ROLE}-{self.server}"

    def settings(self, data_dir: Path, **more: Any) -> Settings:
        given: dict[str, Any] = self.chosen | {"data_dir": data_dir}
        return Settings(**(given | more))

    def requests(self, mark: int) -> list[str]:
        """What the account asked for since `rig.request_mark()`, watches apart: `create jobs`, `get pods/log`."""
        who = f"system:serviceaccount:{self.server}:penstock"
        found = []
        for event in self.rig.requests("penstock/", mark):
            about = event.get("objectRef", {})
            if event["user"].get("username") == who and event["verb"] not in ("watch", "list"):
                if about.get("resource") == "leases":
                    continue  # it is renewed all the time
                part = f"/{about['subresource']}" if "subresource" in about else ""
                found.append(f"{event['verb']} {about.get('resource', '')}{part}")
        return found


def own_names() -> dict[str, str]:
    """For those of the namespaces."""
    mark = secrets.token_hex(3)
    return {"penstock": f"server-{mark}", "penstock-jobs": f"jobs-{mark}", "gpu-operator": f"gpus-{mark}"}


def objects(rig: Rig, overlay: str, names: dict[str, str]) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would apply, with these names for those of namespaces and of what has no namespace."""
    found = list(yaml.safe_load_all(rig.kubectl("kustomize", DEPLOY / overlay)))
    for item in found:
        meta = item["metadata"]
        if "namespace" in meta:
            meta["namespace"] = names[meta["namespace"]]
        elif item["kind"] == "Namespace":
            meta["name"] = names[meta["name"]]
        else:
            meta["name"] = f"{meta['name']}-{names['penstock']}"
        if item["kind"] == "ClusterRoleBinding":
            item["roleRef"]["name"] += f"-{names['penstock']}"
        if item["kind"] == "ClusterRole":
            _rename(item["rules"], {ROLE: f"{ROLE}-{names['penstock']}"})
        if item["kind"] == "ValidatingAdmissionPolicyBinding":
            item["spec"]["policyName"] += f"-{names['penstock']}"
        if item["kind"] == "ValidatingAdmissionPolicy":
            quoted = {f'"{old}"': f'"{new}"' for old, new in names.items() if old != "penstock"}
            quoted |= {
                '"penstock-jobs-"': f'"{names["penstock-jobs"]}-"',
                f'"{ROLE}"': f'"{ROLE}-{names["penstock"]}"',
                ":penstock:penstock": f":{names['penstock']}:penstock",
                'namespace == "penstock"': f'namespace == "{names["penstock"]}"',
                'orValue("") == "penstock"': f'orValue("") == "{names["penstock"]}"',
            }
            _rename(item["spec"]["matchConditions"] + item["spec"]["validations"], quoted)
        for subject in item.get("subjects", ()):
            subject["namespace"] = names[subject["namespace"]]
    return found


def _rename(rules: list[dict[str, Any]], by: dict[str, str]) -> None:
    for rule in rules:
        if "expression" in rule:
            for old, new in by.items():
                rule["expression"] = rule["expression"].replace(old, new)
        if "resourceNames" in rule:
            rule["resourceNames"] = [by.get(name, name) for name in rule["resourceNames"]]


@contextmanager
def deployed(rig: Rig, place: Path, *overlays: str) -> Iterator[Deployed]:
    """Only the account and its rights: the server runs in the test."""
    names = own_names()
    found = [item for overlay in overlays or ("base",) for item in objects(rig, overlay, names)]
    made = [item for item in found if item["kind"] in RIGHTS]
    if "gpu-use" in overlays:  # its namespace is somebody else's, and there before it
        made.insert(
            0, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names["gpu-operator"], "labels": {}}}
        )
    for item in made:
        if item["kind"] == "Namespace":
            rig.make_namespace(item["metadata"]["name"], **item["metadata"]["labels"])
    rig.apply(*made)
    try:
        kubeconfig = rig.kubeconfig_for("penstock", names["penstock"], place / "kubeconfig", duration="8h")
        yield Deployed(rig, kubeconfig, names["penstock-jobs"], names["penstock"], names["gpu-operator"])
    finally:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
        rig.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", text=text)
