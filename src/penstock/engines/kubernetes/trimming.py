"""What is kept of other people's pods: 20,000 of them fit into memory only if each is small."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.objects import Container, Meta, Pod, PodSpec, PodStatus, PodVolume

OVER = ("Succeeded", "Failed")


def trimmed(pod: Pod, ours: Callable[[str], bool]) -> Pod | None:
    """Of a pod that is not ours: what it holds and where, and nothing once it has ended.

    `ours` says which namespaces are: in one cluster there may be several Penstocks.
    """
    if pod.labels.get(names.MANAGED) == names.PENSTOCK and ours(pod.namespace):
        return pod
    if pod.status.phase in OVER:
        return None
    return replace(
        pod,
        metadata=_meta(pod.metadata),
        spec=PodSpec(
            node_name=pod.spec.node_name,
            containers=tuple(_container(each) for each in pod.spec.containers),
            init_containers=tuple(_container(each) for each in pod.spec.init_containers),
            volumes=tuple(_volume(each) for each in pod.spec.volumes if _is_claim(each)),
            overhead=pod.spec.overhead,
        ),
        status=PodStatus(phase=pod.status.phase),
    )


def _meta(meta: Meta) -> Meta:
    return Meta(name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version)


def _container(container: Container) -> Container:
    resources = replace(container.resources, limits={})
    return Container(name=container.name, resources=resources, restart_policy=container.restart_policy)


def _volume(volume: PodVolume) -> PodVolume:
    return PodVolume(
        name=volume.name, persistent_volume_claim=volume.persistent_volume_claim, ephemeral=volume.ephemeral
    )


def _is_claim(volume: PodVolume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None
