"""Why a claim is not ready, in the user's words: for the volume itself and for the pods that wait for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.cluster import Cluster
from penstock.engines.kubernetes.inventory import Inventory
from penstock.engines.kubernetes.objects import Claim, Event, Pod, StorageClass
from penstock.engines.kubernetes.shortages import left_out

SELECTED_NODE = "volume.kubernetes.io/selected-node"
FIRST_USE = "binds when first used"

_MISSING = re.compile(r'persistentvolumeclaim "([^"]+)" (?:not found|is being deleted)')
_FAILED = ("ProvisioningFailed", "FailedBinding", "VolumeResizeFailed")
_MAKING = ("Provisioning", "ExternalProvisioning", "WaitForPodScheduled")
_ELSEWHERE = ("volume node affinity conflict", "match PersistentVolume's node affinity")
_UNBOUND = "unbound immediate PersistentVolumeClaims"
_PREFIX = re.compile(r'^failed to (?:provision volume with StorageClass|get target node)(?: "[^"]*")?: ')


@dataclass(frozen=True)
class ClaimsWait:
    message: str
    lost: bool = False
    """It will not come back."""


def claims_wait(pod: Pod, message: str, cluster: Cluster, stock: Inventory) -> ClaimsWait | None:
    """What the pod's claims have to do with why it finds no place; None if nothing."""
    for name in pod.claims():
        claim = cluster.claims.get(name, pod.namespace)
        if claim is None:
            if _MISSING.search(message):
                return ClaimsWait(f"the volume {name} is not there: nobody has a claim of that name", lost=True)
            continue
        shown = volume_name(claim)
        if claim.metadata.deletion_timestamp:
            return ClaimsWait(f"the volume {shown} is being deleted", lost=True)
        if claim.status.phase == "Lost":
            return ClaimsWait(f"the volume {shown} has lost what it was bound to", lost=True)
        if claim.status.phase != "Bound" and (said := _not_bound(claim, message, cluster)):
            return ClaimsWait(f"the volume {shown} is not ready: {said}")
    if any(words in message for words in _ELSEWHERE):
        said = _elsewhere(pod, cluster, stock)
        return ClaimsWait(said or "its volumes can only be used on other nodes than those that have room")
    if left_out(message) and (said := _elsewhere(pod, cluster, stock)):
        return ClaimsWait(said)
    if _UNBOUND in message:
        return ClaimsWait("its volumes have just become ready; it looks for a place again")
    return None


def volume_name(claim: Claim) -> str:
    return claim.labels.get(names.VOLUME_NAME) or claim.name


def _not_bound(claim: Claim, message: str, cluster: Cluster) -> str | None:
    """None where the pod's own place is what it waits for: such a claim is bound when a node was chosen."""
    class_ = cluster.classes.get(claim.spec.storage_class_name or "")
    said = why_not_bound(claim, class_, cluster.events.about(claim.uid))
    if said == FIRST_USE:
        return None
    return said


def why_not_bound(claim: Claim, class_: StorageClass | None, events: Sequence[Event]) -> str:
    name = claim.spec.storage_class_name
    if class_ is None and name:
        return f"there is no storage class {name}"
    latest = next((event for event in reversed(events) if event.reason in (*_FAILED, *_MAKING)), None)
    if latest and latest.reason in _FAILED:
        return _PREFIX.sub("", latest.message).strip().rstrip(".")
    if class_ and class_.volume_binding_mode == "WaitForFirstConsumer" and SELECTED_NODE not in claim.annotations:
        return FIRST_USE
    return f"the storage class {name} makes it" if name else "nothing there is fits it, and it names no storage class"


def _elsewhere(pod: Pod, cluster: Cluster, stock: Inventory) -> str | None:
    found = [claim for name in pod.claims() if (claim := cluster.claims.get(name, pod.namespace))]
    for claim in found:
        node = claim.annotations.get(SELECTED_NODE)
        if node:
            counted = stock.node(node)
            why = counted.message if counted and counted.message else "which has no room for it"
            if counted is None:
                why = "which is gone"
            return f"the volume {volume_name(claim)} can only be used on {node}, {why}"
    return None
