"""Claims, the volumes they are bound to, and their storage classes."""

from __future__ import annotations

from penstock.engines.kubernetes.api.objects.base import (
    Condition,
    KubernetesObject,
    ObjectPart,
    ObjectReference,
    ResourceKind,
    ResourceRequirements,
)


class ClaimSpec(ObjectPart, frozen=True):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    resources: ResourceRequirements = ResourceRequirements()

    one_for_all = ("storage_class_name", "volume_mode")


class ClaimStatus(ObjectPart, frozen=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()

    one_for_all = ("phase",)


class PersistentVolumeClaim(KubernetesObject, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    kind = ResourceKind("PersistentVolumeClaim", "persistentvolumeclaims")


class PersistentVolumeSpec(ObjectPart, frozen=True):
    capacity: dict[str, str] = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    persistent_volume_reclaim_policy: str = ""
    claim_ref: ObjectReference | None = None

    one_for_all = ("storage_class_name", "persistent_volume_reclaim_policy")


class PersistentVolumeStatus(ObjectPart, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""

    one_for_all = ("phase",)


class PersistentVolume(KubernetesObject, frozen=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    kind = ResourceKind("PersistentVolume", "persistentvolumes", namespaced=False)


class KubernetesStorageClass(KubernetesObject, frozen=True):
    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"
    allow_volume_expansion: bool = False

    kind = ResourceKind("StorageClass", "storageclasses", "storage.k8s.io", namespaced=False)

    @property
    def default(self) -> bool:
        return self.annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
