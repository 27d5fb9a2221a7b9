"""Keep volumes as PersistentVolumeClaims: create, watch, grow and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC

from penstock.domain import volumes as domain
from penstock.domain.model import now
from penstock.domain.users import Account
from penstock.domain.volumes import AccessMode, Phase, Volume
from penstock.engines.base import VolumeReport
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import AlreadyExists, KubernetesForbidden, KubernetesNotFound
from penstock.engines.kubernetes.api.objects import OVER, Pod
from penstock.engines.kubernetes.api.resources import KubernetesStorageClass, PersistentVolumeClaim, whole
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.spec import Fields
from penstock.engines.kubernetes.waiting.reasons import FIRST_USE, why_not_bound
from penstock.engines.shared.records import read_volume, volume_record
from penstock.errors import Conflict, InUse, Invalid, Problem, Unavailable

GONE_SECONDS = 30.0
LATE = "WaitForFirstConsumer"
UNSAID = "1Gi"
"""The size of a claim whose document names none: Kubernetes demands one."""


class KubernetesClaims:
    def __init__(self, api: KubernetesApi, cluster: Cluster, namespaces: Namespaces) -> None:
        self._api = api
        self._cluster = cluster
        self._namespaces = namespaces
        self._made: dict[tuple[str, str], PersistentVolumeClaim] = {}
        """Claims that were created and not yet seen by the watch."""
        self._waiting: dict[tuple[str, str], asyncio.Event] = {}
        cluster.claims.subscribe(self._seen)

    def _seen(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        known = after or before
        if known is None:
            return
        key = (known.namespace, known.name)
        self._made.pop(key, None)
        if after is None and key in self._waiting:
            self._waiting[key].set()

    def place(self, volume: Volume) -> tuple[str, str]:
        """Return the namespace and the name of a volume's claim."""
        return self._namespaces.of(volume.user, volume.group), volume.object_name

    def find(self, volume: Volume) -> PersistentVolumeClaim | None:
        namespace, name = self.place(volume)
        return self._cluster.claims.get(name, namespace) or self._made.get((namespace, name))

    # -- storage classes -------------------------------------------------------------------------------------------

    def classes(self) -> list[domain.StorageClass]:
        """List the storage classes, the default first. Of several defaults Kubernetes takes the newest, and so does
        this."""
        there = sorted(self._cluster.classes.all(), key=lambda each: each.name)
        default = max((each for each in there if each.default), key=_made_at, default=None)
        found = [
            domain.StorageClass(
                name=each.name,
                description=_described(each),
                default=each is default,
                resizable=each.allow_volume_expansion,
            )
            for each in there
        ]
        return sorted(found, key=lambda each: not each.default)

    def _class_of(self, claim: PersistentVolumeClaim) -> KubernetesStorageClass | None:
        return self._cluster.classes.get(claim.spec.storage_class_name or "")

    # -- make, grow, delete ------------------------------------------------------------------------------------------

    async def create(self, volume: Volume, account: Account) -> None:
        self._refuse_unknown(volume.storage_class)
        namespace = await self._namespaces.ready(volume.user, volume.group)
        try:
            made = await self._api.create(PersistentVolumeClaim, build_claim(volume, account), namespace)
        except (KubernetesNotFound, KubernetesForbidden) as error:
            raise self._namespaces.missing(namespace, error) from error
        except AlreadyExists:
            made = await self._api.get(PersistentVolumeClaim, volume.object_name, namespace)
            if made.labels.get(names.VOLUME_ID) != volume.id or made.labels.get(names.MANAGED) != names.PENSTOCK:
                raise Conflict(f"There is a claim {namespace}/{made.name} that Penstock did not make.") from None
        if self._cluster.claims.get(made.name, namespace) is None:
            self._made[namespace, made.name] = made

    def _refuse_unknown(self, wanted: str) -> None:
        known = [each.name for each in self.classes()]
        if wanted in known:
            return
        there = f"there are: {', '.join(known)}" if known else "the cluster has none"
        said = f"'{wanted}' is not a storage class" if wanted else "the cluster has no default storage class; name one"
        raise Invalid("The volume cannot be created.", problems=[Problem(said, field="storage_class", hint=there)])

    async def resize(self, volume: Volume) -> None:
        namespace, name = self.place(volume)
        claim = self.find(volume)
        if claim is None:
            raise Unavailable(f"The claim {namespace}/{name} is gone.")
        storage_class = self._class_of(claim)
        if storage_class is None or not storage_class.allow_volume_expansion:
            able = ", ".join(each.name for each in self.classes() if each.resizable)
            raise Conflict(
                f"Volumes of the storage class {claim.spec.storage_class_name or 'none'} cannot grow.",
                hint=f"these can: {able}" if able else "no class of this cluster can",
            )
        if claim.status.phase != "Bound":
            raise Conflict(
                f"Volume {volume.name} is not bound yet, so it cannot grow.",
                hint="use it in a job first, or delete it and create a larger one",
            )
        change: Fields = {"spec": {"resources": {"requests": {"storage": volume.size or UNSAID}}}}
        if known := read_volume(claim.annotations.get(names.RECORD, "")):
            change["metadata"] = {"annotations": {names.RECORD: volume_record(volume, known[1])}}
        await self._api.patch(PersistentVolumeClaim, name, change, namespace)

    async def delete(self, volume: Volume) -> None:
        """Delete the claim and return when it is gone. Kubernetes would let it wait for its users; this says who they
        are."""
        namespace, name = self.place(volume)
        users, claim = self.pods(volume), self.find(volume)
        if users and not (claim and claim.metadata.deletion_timestamp):
            raise InUse(f"Volume {volume.name} is in use by {_named(users)}.", hint="stop what uses it, then try again")
        gone = self._waiting.setdefault((namespace, name), asyncio.Event())
        try:
            await self._release(namespace, name)
            if (
                not await self._api.delete(PersistentVolumeClaim, name, namespace)
                and self._cluster.claims.get(name, namespace) is None
            ):
                return
            async with asyncio.timeout(GONE_SECONDS):
                await gone.wait()
        except TimeoutError:
            held = _named(await self._holders(namespace, name)) or "the cluster"
            raise Unavailable(f"The claim {namespace}/{name} is being deleted; {held} still holds it.") from None
        finally:
            self._made.pop((namespace, name), None)
            self._waiting.pop((namespace, name), None)

    async def _release(self, namespace: str, name: str) -> None:
        """Remove our pods that have ended: Kubernetes keeps a claim while any pod names it. Their logs we keep."""
        ended = [pod for pod in self._cluster.pods.by("claim", f"{namespace}/{name}") if pod.status.phase in OVER]
        ours = [pod for pod in ended if names.run_of(pod) and self._cluster.is_at_home(pod)]
        await asyncio.gather(*(self._api.delete(Pod, pod.name, namespace) for pod in ours))

    async def _holders(self, namespace: str, name: str) -> list[Pod]:
        """List all pods that name the claim, also those of others that have ended, which no cache keeps."""
        return [pod for pod in await self._api.list(Pod, namespace) if name in pod.claims()]

    # -- what is -----------------------------------------------------------------------------------------------------

    def pods(self, volume: Volume) -> list[Pod]:
        """Return every pod that has it now, except those that only measure it."""
        return [pod for pod in self._cluster.pods_using(*self.place(volume)) if not _measures(pod)]

    def users(self, volume: Volume) -> list[str]:
        """Return the users that the store does not know."""
        return sorted(f"pod {pod.namespace}/{pod.name}" for pod in self.pods(volume) if names.run_of(pod) is None)

    def report(self, volume: Volume) -> VolumeReport:
        claim = self.find(volume)
        if claim is None:
            namespace, name = self.place(volume)
            return VolumeReport(phase=Phase.Lost, message=f"The claim {namespace}/{name} is gone.")
        if claim.metadata.deletion_timestamp:
            users = self.pods(volume)
            return VolumeReport(phase=Phase.Deleting, message=f"still used by {_named(users)}" if users else None)
        if claim.status.phase == "Bound":
            return VolumeReport(phase=Phase.Bound, message=_growing(claim))
        if claim.status.phase == "Lost":
            return VolumeReport(phase=Phase.Lost, message="The storage behind its claim is gone.")
        why = why_not_bound(claim, self._class_of(claim), self._cluster.events.about(claim.uid))
        return VolumeReport(phase=Phase.Pending, message=why)

    def literal(self, name: str, user: str, group: str) -> Volume | None:
        """Find a claim by its own name that was not made through Penstock. What is in a namespace of the owner's own is
        theirs; where all share one, it is for the groups that are written on it."""
        claim = self._cluster.claims.get(name, self._namespaces.of(user, group))
        if claim is None or names.VOLUME_ID in claim.labels or names.OWNER in claim.annotations:
            return None
        modes = tuple(AccessMode(mode) for mode in claim.spec.access_modes if mode in AccessMode.__members__)
        size = claim.spec.resources.requests.get("storage", "0")
        return Volume(
            id=name,
            name=name,
            group=group if self._namespaces.scope is None or names.is_for(group, claim) else "",
            user=user,
            size=size,
            size_bytes=whole(size),
            storage_class=claim.spec.storage_class_name or "",
            access_modes=modes or (AccessMode.ReadWriteOnce,),
            phase=Phase.Bound if claim.status.phase == "Bound" else Phase.Pending,
            claim=name,
            created_at=claim.metadata.creation_timestamp or now(),
        )


def build_claim(volume: Volume, account: Account) -> Fields:
    found = {
        names.MANAGED: names.PENSTOCK,
        names.VOLUME: "true",
        names.VOLUME_ID: volume.id,
        names.VOLUME_NAME: volume.name,
        names.USERNAME: names.label(volume.user),
    }
    annotations = {
        names.CREATED_AT: volume.created_at.astimezone(UTC).replace(tzinfo=None).isoformat(),
        names.OWNER: f"{volume.group}/{volume.user}",
        names.RECORD: volume_record(volume, account),
    }
    return {
        "metadata": {"name": volume.object_name, "labels": found, "annotations": annotations},
        "spec": {
            "accessModes": [str(mode) for mode in volume.access_modes],
            "resources": {"requests": {"storage": volume.size or UNSAID}},
            "storageClassName": volume.storage_class,
        },
    }


def _made_at(found: KubernetesStorageClass) -> tuple[float, str]:
    at = found.metadata.creation_timestamp
    return (at.timestamp() if at else 0.0, found.name)


def _described(found: KubernetesStorageClass) -> str:
    binds = FIRST_USE if found.volume_binding_mode == LATE else "binds at once"
    kept = ", its data stays when it is deleted" if found.reclaim_policy == "Retain" else ""
    return f"{found.provisioner}; {binds}{kept}"


def _growing(claim: PersistentVolumeClaim) -> str | None:
    has, wants = claim.status.capacity.get("storage", ""), claim.spec.resources.requests.get("storage", "")
    if has and wants and whole(has) < whole(wants):
        return f"grows from {has} to {wants}"
    return None


def _measures(pod: Pod) -> bool:
    return pod.labels.get(names.MANAGED) == names.PENSTOCK and names.run_of(pod) is None


def _named(pods: Sequence[Pod]) -> str:
    shown = sorted(pod.name for pod in pods)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
