"""Kueue, which decides when Jobs in a queue may start: its own program and manifests, beside the control plane.

In a cluster it would be a Deployment that is reached through a Service. Here it is a process that the API server finds
by its address: its admission and conversion webhooks are registered as Kueue's manifests have them, but with that.
"""

from __future__ import annotations

import base64
import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.rig import build
from tests.rig.processes import wait_for

if TYPE_CHECKING:
    from tests.rig.cluster import Rig

GROUP = "kueue.x-k8s.io"
_GROUPS = {GROUP, "batch"}
"""What it is asked about: its own kinds, and Jobs."""
_INSTALLED = ("CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_WEBHOOKS, _HEALTH = 9443, 8081
_OFF = ("MultiKueue", "TopologyAwareScheduling", "VisibilityOnDemand")
"""What it can do besides, and would look for or listen on a port for."""


def start(rig: Rig) -> None:
    """Install it and wait until it answers. Jobs without a queue are none of its business.

    From then on the API server asks it about every Job: take it only for a rig of your own.
    """
    if "kueue" in rig.processes.running:
        return
    programs = build.build()
    home = rig.directory / "kueue"
    certificates = _certify(rig, home)
    config = home / "config.json"
    config.write_text(json.dumps(_config(rig, certificates)))
    objects = _objects(rig, programs / build.KUEUE_CONFIG / "default")
    rig.apply(*objects)
    kinds = [f"crd/{item['metadata']['name']}" for item in objects if item["kind"] == "CustomResourceDefinition"]
    rig.kubectl("wait", "--for=condition=Established", "--timeout=90s", *kinds)
    # It looks for certificates in /etc, and its manifests cannot say otherwise: it gets an /etc of its own.
    own_etc = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', home / "etc")
    given = (f"--config={config}", f"--kubeconfig={rig.kubeconfig}")
    rig.processes.start("kueue", *own_etc, programs / "kueue", *given)
    wait_for("Kueue", lambda: _is_ready(rig))


def _certify(rig: Rig, home: Path) -> Path:
    """Where its certificate is, under the names it looks for."""
    pki, place = rig.control.certificates, home / "etc/kueue/metrics/certs"
    place.mkdir(parents=True, exist_ok=True)
    pki.make("kueue", "/CN=kueue", f"IP:{rig.addresses.control}")
    shutil.copy(pki.certificate("kueue"), place / "tls.crt")
    shutil.copy(pki.key("kueue"), place / "tls.key")
    return place


def _config(rig: Rig, certificates: Path) -> dict[str, Any]:
    at = rig.addresses.control
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{at}:{_HEALTH}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": at, "port": _WEBHOOKS, "certDir": str(certificates)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 100, "burst": 200},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": dict.fromkeys(_OFF, False),
    }


def _objects(rig: Rig, manifests: Path) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would apply, as far as it is not about running Kueue in a pod."""
    text = rig.kubectl("kustomize", manifests)
    found = [item for item in yaml.load_all(text, yaml.CSafeLoader) if item["kind"] in _INSTALLED]
    authority = base64.b64encode(rig.control.certificates.authority.read_bytes()).decode()
    for item in found:
        if "webhooks" in item:
            item["webhooks"] = [each for each in item["webhooks"] if _groups(each) <= _GROUPS]
        conversion = item.get("spec", {}).get("conversion", {})
        for hook in (*item.get("webhooks", ()), *filter(None, [conversion.get("webhook")])):
            path = hook["clientConfig"]["service"]["path"]
            url = f"https://{rig.addresses.control}:{_WEBHOOKS}{path}"
            hook["clientConfig"] = {"url": url, "caBundle": authority}
    return [_without_prose(item) for item in found]


def _groups(webhook: dict[str, Any]) -> set[str]:
    return {group for rule in webhook["rules"] for group in rule["apiGroups"]}


def _without_prose(value: Any) -> Any:
    """`kubectl apply` keeps a copy of what it applied, and with all that is said of each field that is too long."""
    if isinstance(value, dict):
        said = {name for name, inner in value.items() if name == "description" and isinstance(inner, str)}
        return {name: _without_prose(inner) for name, inner in value.items() if name not in said}
    return [_without_prose(inner) for inner in value] if isinstance(value, list) else value


def _is_ready(rig: Rig) -> bool:
    rig.processes.check("kueue")
    try:
        with urllib.request.urlopen(f"http://{rig.addresses.control}:{_HEALTH}/readyz", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False
