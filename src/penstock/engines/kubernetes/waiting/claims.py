"""Explain why a claim is not ready, for the volume itself and for the pods that wait for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.resources import (
    KubernetesEvent,
    KubernetesStorageClass,
    PersistentVolumeClaim,
)
from penstock.engines.kubernetes.nodes import Inventory

SELECTED_NODE = "volume.kubernetes.io/selected-node"
FIRST_USE = "binds when first used"

_MISSING = re.compile(r'persistentvolumeclaim "([^"]+)" (?:not found|is being deleted)')
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_NONE_TO_BIND = "available persistent volumes to bind"
_FAILED = ("ProvisioningFailed", "FailedBinding", "VolumeResizeFailed")
_ELSEWHERE = ("volume node affinity conflict", "match PersistentVolume's node affinity")
_UNBOUND = "unbound immediate PersistentVolumeClaims"
_PREFIX = re.compile(r'^failed to (?:provision volume with StorageClass|get target node)(?: "[^"]*")?: ')


@dataclass(frozen=True)
class ClaimProblem:
    message: str
    lost: bool = False
    """The data will not come back."""


def find_claim_problem(pod: Pod, message: str, cluster: Cluster, inventory: Inventory) -> ClaimProblem | None:
    """Say why the pod's claims keep it from a place; None if they do not."""
    for name in pod.claims():
        claim = cluster.claims.get(name, pod.namespace)
        if claim is None:
            if _MISSING.search(message):
                return ClaimProblem(f"the volume {name} is not there: nobody has a claim of that name", lost=True)
            continue
        shown = volume_name(claim)
        if claim.metadata.deletion_timestamp:
            return ClaimProblem(f"the volume {shown} is being deleted", lost=True)
        if claim.status.phase == "Lost":
            return ClaimProblem(f"the volume {shown} has lost what it was bound to", lost=True)
        if claim.status.phase != "Bound" and (said := _not_bound(claim, message, cluster)):
            return ClaimProblem(f"the volume {shown} is not ready: {said}")
    if any(words in message for words in _ELSEWHERE):
        said = _elsewhere(pod, cluster, inventory)
        return ClaimProblem(said or "its volumes can only be used on other nodes than those that have room")
    if _UNBOUND in message:
        return ClaimProblem("its volumes have just become ready; it looks for a place again")
    return None


def volume_name(claim: PersistentVolumeClaim) -> str:
    return claim.labels.get(names.VOLUME_NAME) or claim.name


def _not_bound(claim: PersistentVolumeClaim, message: str, cluster: Cluster) -> str | None:
    """Say why a claim is not bound; None if it waits only for the pod's own place."""
    class_ = cluster.classes.get(claim.spec.storage_class_name or "")
    if class_ and _binds_late(claim, class_) and class_.provisioner == _NO_PROVISIONER:
        return _made_by_hand(claim) if _NONE_TO_BIND in message else None
    said = why_not_bound(claim, class_, cluster.events.about(claim.uid))
    return None if said == FIRST_USE else said


def why_not_bound(
    claim: PersistentVolumeClaim, class_: KubernetesStorageClass | None, events: Sequence[KubernetesEvent]
) -> str:
    """Say why a claim is not bound. A failure counts until it is: the provisioner tries again and again."""
    name = claim.spec.storage_class_name
    if not name:
        return "nothing there is fits it, and it names no storage class"
    if class_ is None:
        return f"there is no storage class {name}"
    late = _binds_late(claim, class_)
    if class_.provisioner == _NO_PROVISIONER:
        return f"{FIRST_USE}; {_made_by_hand(claim)}" if late else _made_by_hand(claim)
    if failed := next((event for event in reversed(events) if event.reason in _FAILED), None):
        return _PREFIX.sub("", failed.message).strip().rstrip(".")
    return FIRST_USE if late else _being_made(class_, events)


def _binds_late(claim: PersistentVolumeClaim, class_: KubernetesStorageClass) -> bool:
    return class_.volume_binding_mode == "WaitForFirstConsumer" and SELECTED_NODE not in claim.annotations


def _made_by_hand(claim: PersistentVolumeClaim) -> str:
    size, modes = claim.spec.resources.requests.get("storage", ""), ", ".join(claim.spec.access_modes)
    name = claim.spec.storage_class_name
    return f"the storage class {name} has no provisioner: an admin must make a PersistentVolume of {size} with {modes}"


def _being_made(class_: KubernetesStorageClass, events: Sequence[KubernetesEvent]) -> str:
    """Say how far a provisioner is: Kubernetes says when it has asked one, and the provisioner when it has begun."""
    asked = next((event for event in events if event.reason == "ExternalProvisioning"), None)
    if asked is None or any(event.reason == "Provisioning" for event in events):
        return f"the storage class {class_.name} makes it"
    since = f" since {at.astimezone():%H:%M:%S}" if (at := asked.first_timestamp) else ""
    said = f"the provisioner {class_.provisioner} of the storage class {class_.name} has not answered{since}"
    return f"{said}; an admin can see whether it runs"


def _elsewhere(pod: Pod, cluster: Cluster, inventory: Inventory) -> str | None:
    found = [claim for name in pod.claims() if (claim := cluster.claims.get(name, pod.namespace))]
    for claim in found:
        node = claim.annotations.get(SELECTED_NODE)
        if node:
            counted = inventory.node(node)
            why = counted.message if counted and counted.message else "which has no room for it"
            if counted is None:
                why = "which is gone"
            return f"the volume {volume_name(claim)} can only be used on {node}, {why}"
    return None
