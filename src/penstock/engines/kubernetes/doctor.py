"""Check for `penstock doctor` that the cluster answers, fits, and gives Penstock the rights it needs."""

from __future__ import annotations

import asyncio
import re

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesNotFound
from penstock.engines.kubernetes.api.objects import Job, KubernetesObject, Pod
from penstock.engines.kubernetes.api.resources import (
    KubernetesEvent,
    KubernetesNode,
    KubernetesStorageClass,
    Lease,
    Namespace,
    NetworkPolicy,
    PersistentVolumeClaim,
    ResourceQuota,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from penstock.engines.kubernetes.gpus import GpuExporters
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.nodes.activity import Activity
from penstock.engines.kubernetes.volumes import KubernetesClaims
from penstock.settings import Settings
from penstock.wire.server import Check

OLDEST, NEWEST = 30, 36
WATCH = ("list", "watch")
Right = tuple[str, type[KubernetesObject], str]
"""A verb, a kind and a subresource."""

IN_NAMESPACE: tuple[Right, ...] = (
    *((verb, Job, "") for verb in ("get", *WATCH, "create", "patch", "delete")),
    *((verb, PersistentVolumeClaim, "") for verb in ("get", *WATCH, "create", "patch", "delete")),
    *((verb, Service, "") for verb in (*WATCH, "create", "patch", "delete")),
    *((verb, Secret, "") for verb in ("get", "create")),
    *((verb, Pod, "") for verb in ("get", *WATCH, "delete")),
    ("get", Pod, "log"),
    *((verb, Pod, part) for part in ("exec", "portforward") for verb in ("get", "create")),
    *((verb, KubernetesEvent, "") for verb in WATCH),
)
FOR_THE_LEASE: tuple[Right, ...] = tuple((verb, Lease, "") for verb in ("get", "create", "patch"))
IN_CLUSTER: tuple[Right, ...] = tuple(
    (verb, kind, "") for kind in (KubernetesNode, Pod, KubernetesStorageClass) for verb in WATCH
)
FOR_NAMESPACES: tuple[Right, ...] = (
    ("get", Namespace, ""),
    ("create", Namespace, ""),
    *((verb, ServiceAccount, "") for verb in WATCH),
    *((verb, kind, "") for kind in (ResourceQuota, NetworkPolicy) for verb in ("create", "patch")),
)
OF_ALL: tuple[Right, ...] = tuple(
    (verb, kind, "") for kind in (Job, PersistentVolumeClaim, Service, KubernetesEvent) for verb in WATCH
)
"""Kinds that are watched in all namespaces."""
FOR_BINDING: tuple[Right, ...] = (("get", Namespace, ""), ("create", Namespace, ""), ("create", RoleBinding, ""))
"""Needed where a role in each namespace gives the other rights."""

PATIENCE = 4.0
"""Seconds: a check says what is now, so it does not wait long."""


async def run_checks(
    api: KubernetesApi,
    cluster: Cluster,
    claims: KubernetesClaims,
    namespaces: Namespaces,
    exporters: GpuExporters,
    activity: Activity,
    settings: Settings,
) -> list[Check]:
    reached = await _reached(api)
    if not reached[0].ok:
        return reached
    rights = await _rights(api, namespaces, settings)
    seen = [*await _gpu_use(cluster, exporters), *await _node_use(activity, settings)]
    return [*reached, *await _namespace(api, namespaces), rights, _default_class(claims), *_gpus(cluster), *seen]


async def _reached(api: KubernetesApi) -> list[Check]:
    try:
        version = await api.hurried(PATIENCE).version()
    except KubernetesError as error:
        return [Check(name="cluster", ok=False, detail=error.message, fix=error.hint)]
    return [Check(name="cluster", ok=True, detail=f"{api.server} answers"), _version(version)]


def _version(version: str) -> Check:
    found = re.match(r"v?1\.(\d+)", version)
    minor = int(found[1]) if found else 0
    ok = OLDEST <= minor <= NEWEST
    said = version if ok else f"{version}; Penstock is made for 1.{OLDEST} to 1.{NEWEST}"
    return Check(name="kubernetes", ok=ok, detail=said, required=False)


async def _namespace(api: KubernetesApi, namespaces: Namespaces) -> list[Check]:
    """Check that the namespace is there, if Penstock may ask."""
    name = namespaces.scope
    if name is None:
        return []
    try:
        await api.get(Namespace, name)
    except KubernetesNotFound:
        said, fix = f"{name} is not there", f"kubectl create namespace {name}"
        return [Check(name="namespace", ok=False, detail=said, fix=fix)]
    except KubernetesError:
        return []
    return [Check(name="namespace", ok=True, detail=name)]


async def _rights(api: KubernetesApi, namespaces: Namespaces, settings: Settings) -> Check:
    in_namespace, for_namespaces = IN_NAMESPACE, FOR_NAMESPACES
    if settings.kubernetes_namespace_role:  # the rest it has only where the role is bound to it
        in_namespace, for_namespaces = OF_ALL, FOR_BINDING
    wanted = [(right, namespaces.scope) for right in in_namespace] + [(right, None) for right in IN_CLUSTER]
    wanted += [(right, namespaces.base) for right in FOR_THE_LEASE]
    if settings.kubernetes_namespaces != "one":
        wanted += [(right, None) for right in for_namespaces]

    async def lacks(right: Right, namespace: str | None) -> str | None:
        verb, kind, part = right
        if await api.may(verb, kind, namespace, subresource=part):
            return None
        return f"{verb} {kind.kind.plural}" + (f"/{part}" if part else "") + ("" if namespace else " (all namespaces)")

    try:
        lacking = [said for said in await asyncio.gather(*(lacks(*each) for each in wanted)) if said]
    except KubernetesError as error:
        return Check(name="rights", ok=False, detail=error.message, fix=error.hint)
    if lacking:
        fix = "apply deploy/kubernetes, or give its account what its Role lists"
        return Check(name="rights", ok=False, detail=f"not allowed: {', '.join(lacking)}", fix=fix)
    return Check(name="rights", ok=True, detail="all that is needed is allowed")


def _default_class(claims: KubernetesClaims) -> Check:
    classes = claims.classes()
    default = next((each.name for each in classes if each.default), None)
    if default:
        return Check(name="storage class", ok=True, detail=f"the default is {default}", required=False)
    there = ", ".join(each.name for each in classes)
    said = f"none is the default; volumes must name one of {there}" if there else "the cluster has none"
    fix = "kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true"
    return Check(name="storage class", ok=False, detail=said, fix=fix, required=False)


def _gpus(cluster: Cluster) -> list[Check]:
    """Check that nodes name their GPUs: without a product they can be asked for by number only."""
    having = cluster.nodes_with_gpus()
    unnamed = sorted(node.name for node in having if not node.labels.get(names.GPU_PRODUCT))
    if not having:
        return []
    if unnamed:
        said = f"the nodes {', '.join(unnamed[:5])} do not say which GPUs they have"
        fix = "install NVIDIA's GPU feature discovery, or label the nodes with nvidia.com/gpu.product"
        return [Check(name="GPU products", ok=False, detail=said, fix=fix, required=False)]
    return [Check(name="GPU products", ok=True, detail=f"named on {len(having)} nodes", required=False)]


async def _gpu_use(cluster: Cluster, exporters: GpuExporters) -> list[Check]:
    """Left out where the admin has not asked for it."""
    nodes = cluster.nodes_with_gpus()
    if not nodes or not exporters.namespace:
        return []
    troubles = await exporters.troubles()
    if not troubles:
        return [Check(name="GPU use", ok=True, detail=f"seen on {len(nodes)} nodes", required=False)]
    named, trouble = ", ".join(sorted(troubles)[:5]), troubles[min(troubles)]
    said = f"what the GPUs of {named} do is not seen: {trouble.why}"
    return [Check(name="GPU use", ok=False, detail=said, fix=trouble.fix, required=False)]


async def _node_use(activity: Activity, settings: Settings) -> list[Check]:
    """Left out where the admin has not asked for it."""
    if not settings.kubernetes_kubelet_account:
        return []
    asked, troubles = await activity.troubles()
    if not troubles:
        return [Check(name="node use", ok=True, detail=f"seen on {asked} nodes", required=False)]
    named, trouble = ", ".join(sorted(troubles)[:5]), troubles[min(troubles)]
    said = f"of {named} not all is seen for `top node`: {trouble.why}"
    return [Check(name="node use", ok=False, detail=said, fix=trouble.fix, required=False)]
