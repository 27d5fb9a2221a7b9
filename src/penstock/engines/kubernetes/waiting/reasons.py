"""Explain why a run has not started yet, from pod conditions, events, claims and the inventory.

What will not mend itself says so (`ends_as`): Kubernetes would wait for ever, the server does not. Why a claim is not
ready is told of the volume itself in the same words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from penstock.domain.states import Reason, State
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import describe_quota
from penstock.engines.kubernetes.api.objects import ContainerStateWaiting, Job, Pod, condition
from penstock.engines.kubernetes.api.resources import (
    KubernetesEvent,
    KubernetesStorageClass,
    PersistentVolumeClaim,
)
from penstock.engines.kubernetes.nodes.inventory import Inventory
from penstock.engines.kubernetes.state.jobs import PlacementRecord, awaits_product, read_placement
from penstock.engines.kubernetes.state.report import WaitReason
from penstock.engines.kubernetes.waiting.capacity import (
    Autoscaler,
    ShortageCauses,
    explain_causes,
    explain_lack_of_room,
    explain_shortage,
    reduce_to_shape,
    wanted_products,
)
from penstock.engines.shared.endings import strip_runtime_names
from penstock.engines.shared.images import FAILING, NEVER, describe_pull_failure

SAID_SECONDS, SAID_KEPT = 2.0, 1000

_NOT_MOUNTED = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_HAS_IMAGE = ("Pulled", "Created", "Started")
_STEPS = ("Scheduled", "SuccessfulAttachVolume", *_NOT_MOUNTED, "FailedCreatePodSandBox", "Pulling", *_HAS_IMAGE)
"""Events that say how far a pod with a place is."""

_PULL_SECRETS = re.compile(r"image pull secrets \(([^)]+)\)")
_MISSING = re.compile(r'(secret|configmap) "([^"]+)" not found', re.I)
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request(?:: | without explanation)?(.*)', re.S)
_SECURITY = re.compile(r'violates PodSecurity "([^":]+)[^"]*": (.*)', re.S)
_CREATING = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?', re.S)
_MOUNT = re.compile(r'^(?:MountVolume\.\w+|AttachVolume\.\w+|UnmapVolume\.\w+) failed for volume "([^"]+)" ?: ')


class PendingReasons:
    def __init__(
        self, cluster: Cluster, inventory: Inventory, autoscaler: Autoscaler, in_queue: Callable[[Job], str]
    ) -> None:
        """`in_queue` explains what a Job waits for that is in a queue."""
        self._cluster, self._inventory, self._in_queue = cluster, inventory, in_queue
        self._autoscaler = autoscaler
        self._said: dict[tuple[str, object], tuple[float, str]] = {}

    def why(self, jobs: Sequence[Job], pod: Pod | None) -> WaitReason:
        if pod is None:
            return self._no_pod(jobs)
        placed = condition(pod.status.conditions, "PodScheduled")
        if pod.spec.node_name:
            return self._placed(pod)
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return WaitReason(State.QUEUED, Reason.IN_QUEUE, f"it is held back by {gates}")
        if pod.status.nominated_node_name:
            said = f"room is being made for it on {pod.status.nominated_node_name}"
            return WaitReason(State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, said)
        if placed and not placed.true:
            return self._unschedulable(pod, placed.message)
        # While a claim is made for a pod that has its node, the scheduler says nothing of the pod.
        return self._volumes(pod) or WaitReason(State.QUEUED, Reason.SUBMITTED, "the cluster looks for a place")

    # no pod

    def _no_pod(self, jobs: Sequence[Job]) -> WaitReason:
        if suspended := next((job for job in jobs if job.spec.suspend), None):
            return self._suspended(suspended)
        for job in jobs:
            if refused := self._refused(job):
                return refused
        counts = jobs[0].spec if jobs and jobs[0].status.start_time else None
        if counts and (counts.parallelism or 0) < (counts.completions or 0):
            return WaitReason(
                State.QUEUED, Reason.SUBMITTED, f"it waits for its turn: {counts.parallelism} run at once"
            )
        return WaitReason(State.QUEUED, Reason.SUBMITTED, "the cluster makes its pod")

    def _suspended(self, job: Job) -> WaitReason:
        if names.QUEUE in job.labels:
            return WaitReason(State.QUEUED, Reason.IN_QUEUE, self._in_queue(job))
        if placement := read_placement(job):
            return self._held(job, placement)
        return WaitReason(State.QUEUED, Reason.SUBMITTED, "its Job was suspended in the cluster")

    def _held(self, job: Job, placement: PlacementRecord) -> WaitReason:
        pod = job.pod()
        if awaits_product(job) and not self._inventory.has_product(wanted_products(pod)):
            said = explain_causes(pod, ShortageCauses(affinity=True), self._inventory)
            return WaitReason(
                State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, f"{said}; it starts when a node has what it needs"
            )
        lacking = explain_lack_of_room(pod, job.completions, self._inventory, self._autoscaler)
        if not placement.tries:
            said = lacking or "there is room for it; it looks for its places in a moment"
            return WaitReason(State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, said)
        said = f"not all of its nodes found a place, so those that had one gave it back ({placement.tries} so far)"
        if lacking:
            said += f"; {lacking}"
        elif placement.again:
            said += f"; it tries again when there is room, or at {placement.again.astimezone():%H:%M:%S}"
        return WaitReason(State.QUEUED, Reason.GIVEN_BACK, said)

    def _refused(self, job: Job) -> WaitReason | None:
        """Say why Kubernetes may not make its pods; None if it may."""
        about = self._cluster.events.about(job.uid)
        latest = next(
            (event for event in reversed(about) if event.reason in ("FailedCreate", "SuccessfulCreate")), None
        )
        if latest is None or latest.reason != "FailedCreate":
            return None
        said = _CREATING.sub("", latest.message).strip().rstrip(".")
        if quota := describe_quota(said):
            return WaitReason(State.DENIED, Reason.QUOTA, quota)
        since = latest.first_timestamp or latest.last_seen
        if denied := _denial(said):
            return WaitReason(State.DENIED, Reason.LAUNCH_FAILED, denied, Reason.LAUNCH_FAILED, since=since)
        return WaitReason(State.QUEUED, Reason.SUBMITTED, f"its pod cannot be made yet: {said}")

    # no place

    def _unschedulable(self, pod: Pod, message: str) -> WaitReason:
        if found := self._volumes(pod, message):
            return found
        said = self._shortage(pod, message)
        if coming := self._autoscaler.brings(pod):
            said += f"; the cluster's autoscaler can bring {coming}"
        return WaitReason(State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, said)

    def _volumes(self, pod: Pod, message: str = "") -> WaitReason | None:
        found = find_claim_problem(pod, message, self._cluster, self._inventory)
        if found is None:
            return None
        ends_as = Reason.VOLUME_LOST if found.lost else None
        return WaitReason(State.QUEUED, Reason.VOLUME_NOT_READY, found.message, ends_as)

    def _shortage(self, pod: Pod, message: str) -> str:
        """Explain what no node has. Many pods wait for the same, so an answer holds a while: all nodes are gone through
        for it."""
        key = (message, reduce_to_shape(pod))
        at, said = self._said.get(key, (-math.inf, ""))
        moment = monotonic()
        if moment - at > SAID_SECONDS:
            if len(self._said) > SAID_KEPT:
                self._said.clear()
            said = explain_shortage(pod, message, self._inventory)
            self._said[key] = (moment, said)
        return said

    # placed

    def _placed(self, pod: Pod) -> WaitReason:
        status = pod.container(names.CONTAINER)
        waiting = status.state.waiting if status else None
        events = self._cluster.events.about(pod.uid)
        if waiting and waiting.reason in (*FAILING, *NEVER):
            return _not_pulled(pod, waiting, events)
        if waiting and waiting.reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            return _not_made(waiting, events)
        latest = next((event for event in reversed(events) if event.reason in _STEPS), None)
        where = f"it starts on {pod.spec.node_name}"
        if latest is None or latest.reason in ("Scheduled", "SuccessfulAttachVolume"):
            return WaitReason(State.ASSIGNED, Reason.PLACED, where)
        if latest.reason in _NOT_MOUNTED:
            return self._not_mounted(pod, latest)
        if latest.reason == "FailedCreatePodSandBox":
            said = f"{pod.spec.node_name} cannot make its container yet: {strip_runtime_names(latest.message)}"
            return WaitReason(State.ASSIGNED, Reason.PLACED, said)
        if latest.reason == "Pulling":
            said = f"{pod.spec.node_name} pulls the image {_image(pod)}"
            return WaitReason(State.PULLING, Reason.PULLING_IMAGE, said)
        return WaitReason(State.LAUNCHING, Reason.PLACED, where)

    def _not_mounted(self, pod: Pod, event: KubernetesEvent) -> WaitReason:
        since = event.first_timestamp or event.last_seen
        if missing := _missing(event.message):
            return WaitReason(State.ASSIGNED, Reason.VOLUME_NOT_READY, missing, Reason.LAUNCH_FAILED, since=since)
        said = _MOUNT.sub("", event.message).strip().rstrip(".")
        return WaitReason(
            State.ASSIGNED, Reason.VOLUME_NOT_READY, f"a volume cannot be mounted on {pod.spec.node_name}: {said}"
        )


def _not_pulled(pod: Pod, waiting: ContainerStateWaiting, events: Sequence[KubernetesEvent]) -> WaitReason:
    said = describe_pull_failure(_image(pod), waiting.reason, waiting.message)
    if missing := _missing_credentials(events):
        said = f"the image {_image(pod)} cannot be pulled: {missing}, which has the registry's credentials"
    failed = [event.first_timestamp for event in events if event.reason in ("Failed", "InspectFailed", "BackOff")]
    since = min((moment for moment in failed if moment), default=None)
    at_once = waiting.reason in NEVER
    return WaitReason(State.PULLING, Reason.PULLING_IMAGE, said, Reason.PULL_FAILED, at_once=at_once, since=since)


def _missing_credentials(events: Sequence[KubernetesEvent]) -> str | None:
    """Find the Secret that is missing: a registry denies that there is an image, but the kubelet knows better."""
    told = next((event.message for event in events if event.reason == "FailedToRetrieveImagePullSecret"), "")
    found = _PULL_SECRETS.search(told)
    return f"the Secret {found[1]} is not there" if found else None


def _not_made(waiting: ContainerStateWaiting, events: Sequence[KubernetesEvent]) -> WaitReason:
    said = _missing(waiting.message) or f"its container cannot be made: {strip_runtime_names(waiting.message)}"
    failed = [event.first_timestamp for event in events if event.reason == "Failed"]
    since = min((moment for moment in failed if moment), default=None)
    return WaitReason(State.ASSIGNED, Reason.LAUNCH_FAILED, said, Reason.LAUNCH_FAILED, since=since)


def _missing(message: str) -> str | None:
    found = _MISSING.search(message)
    if not found:
        return None
    kind = "Secret" if found[1].lower() == "secret" else "ConfigMap"
    return f"the {kind} {found[2]} is missing in the cluster"


def _denial(said: str) -> str | None:
    if denied := _DENIED.search(said):
        why = denied[2].strip().rstrip(".")
        return f"the cluster's policy {denied[1]} refuses it" + (f": {why}" if why else "")
    if security := _SECURITY.search(said):
        return f"the Pod Security level {security[1]} of its namespace refuses it: {security[2].strip()}"
    if "failed quota" in said:
        return f"a quota of its namespace refuses it: {said.partition('failed quota: ')[2]}"
    if "is forbidden" in said or "is invalid" in said:
        return f"the cluster refuses its pod: {said}"
    return None


def _image(pod: Pod) -> str:
    return next((each.image for each in pod.spec.containers if each.name == names.CONTAINER), "")


# claims


SELECTED_NODE = "volume.kubernetes.io/selected-node"
FIRST_USE = "binds when first used"

_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" (?:not found|is being deleted)')
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
            if _NO_CLAIM.search(message):
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
