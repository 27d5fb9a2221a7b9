"""Refuse at submit what can never run in this cluster, and Secrets that are not the user's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.domain.names import shorten
from penstock.domain.nodes import product_matches
from penstock.domain.workloads import Spec
from penstock.engines.base import Refusal
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesNotFound
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import Secret
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.nodes.inventory import UNNAMED
from penstock.engines.kubernetes.waiting.capacity import Autoscaler
from penstock.engines.shared.refusals import ELSEWHERE, refuse_long_words, refuse_mount_over_workdir

LARGEST_SPEC = 128 * 1024
"""Bytes of a spec: it is kept beside the Job, where a cluster allows 256 KiB."""
Products = Mapping[str, tuple[int, int]]
"""How many there are of each product, and how many of them are free."""


def find_refusals(spec: Spec, products: Products, autoscaler: Autoscaler, *, kueue: bool) -> list[Refusal]:
    return [
        *_no_command(spec),
        *_too_long(spec),
        *_unknown_products(spec, products, autoscaler),
        *_no_queue(spec, kueue=kueue),
        *refuse_mount_over_workdir(spec),
        *_not_here(spec),
    ]


def _not_here(spec: Spec) -> list[Refusal]:
    """Refuse what Kubernetes knows nothing of, or decides by itself."""
    found = []
    if spec.selectors.cpu_product:
        said = "Kubernetes does not say which CPUs its nodes have"
        hint = "ask for a node label instead: selectors, labels"
        found.append(Refusal(keys=("selectors",), message=said, hint=hint))
    if spec.selectors.spread:
        said = "in Kubernetes the scheduler of the cluster decides how Pods are spread"
        found.append(Refusal(keys=("selectors", "spread"), message=said, hint="leave it out"))
    if spec.priority:
        said = "in Kubernetes the admin's PriorityClass decides"
        found.append(Refusal(keys=("priority",), message=said, hint="leave it out"))
    return found


def matching_products(wanted: Sequence[str], products: Iterable[str]) -> tuple[str, ...]:
    """Return what nodes that are there or can come call the wanted GPUs; else the user's words."""
    found = tuple(product for product in products if any(product_matches(each, product) for each in wanted))
    return found or tuple(each.replace(" ", "-") for each in wanted)


def _no_command(spec: Spec) -> list[Refusal]:
    """Refuse what needs a program that Penstock starts: the image's own cannot be made to wait for anything."""
    if spec.run is not None or (spec.nodes == 1 and (not spec.workdir or spec.workdir.startswith("/"))):
        return []
    said = "is missing: with several nodes or a workdir, the image's own command cannot be used"
    return [Refusal(keys=("run",), message=said, hint="name the program")]


def _too_long(spec: Spec) -> list[Refusal]:
    found = refuse_long_words(spec)
    if not found and len(spec.model_dump_json().encode()) > LARGEST_SPEC:
        found.append(Refusal(keys=(), message="the task is longer than 128 KiB", hint=ELSEWHERE))
    return found


def find_notices(spec: Spec, products: Products, autoscaler: Autoscaler) -> list[str]:
    """Warn of a product that no node has: it may be on its way, or misspelt."""
    if not are_unknown(spec, (*products, *autoscaler.products)):
        return []
    there = _there(products)
    said = f"No node has a GPU {_named(spec)} now: it waits until one has. {there[:1].upper()}{there[1:]}."
    return [f"{said} An autoscaler brings one only when an admin has named it in kubernetes_autoscaler."]


def _unknown_products(spec: Spec, products: Products, autoscaler: Autoscaler) -> list[Refusal]:
    """Refuse products that no node has, where the admin has said what can come."""
    if not autoscaler.known or not are_unknown(spec, (*products, *autoscaler.products)):
        return []
    hint = _there(products)
    if autoscaler.products:
        hint += f"; an autoscaler can bring: {', '.join(autoscaler.products)}"
    return [Refusal(keys=("resources", "accelerators"), message=f"no node has a GPU {_named(spec)}", hint=hint)]


def are_unknown(spec: Spec, products: Iterable[str]) -> bool:
    """Does it ask for GPU products of which none is known?"""
    wanted, known = spec.resources.gpu_products, tuple(products)
    return bool(wanted) and not any(product_matches(each, product) for each in wanted for product in known)


def _named(spec: Spec) -> str:
    return " or ".join(f"'{wanted}'" for wanted in spec.resources.gpu_products)


def _there(products: Products) -> str:
    there = [f"{product} ({free} of {total} free)" for product, (total, free) in products.items() if product != UNNAMED]
    if there:
        return f"there are: {', '.join(there)}"
    if products:
        return "the nodes do not say which GPUs they have; ask for a number of them, as in 'accelerators: 1'"
    return "no node of this cluster has a GPU"


def _no_queue(spec: Spec, *, kueue: bool) -> list[Refusal]:
    if not spec.queue or kueue:
        return []
    said = "this cluster has no queues: Kueue is not installed in it"
    return [Refusal(keys=("queue",), message=said, hint="leave it out; Kubernetes starts the job when there is room")]


# Secrets that a manifest names

OF_THE_CLUSTER = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1")
"""Types of Secrets that are never a job's."""
OF_REGISTRIES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")


class NamedSecrets:
    """Check the Secrets a manifest refers to: whoever names a Secret can read it.

    Where each user or group has a namespace, those in it are theirs. In a namespace that all share, a Secret is used
    only by the groups that somebody with rights in the cluster wrote on it.
    """

    def __init__(self, api: KubernetesApi, namespaces: Namespaces, for_pulling: tuple[str, ...]) -> None:
        self._api = api
        self._namespaces = namespaces
        self._for_pulling = for_pulling
        """The admin's own, for pulling every pod's image; no job may read them."""

    async def refusals(self, spec: Spec, owner: tuple[str, str]) -> list[Refusal]:
        """Refuse Secrets that are missing or another's; both have the same answer."""
        found: list[Refusal] = []
        known: dict[str, Secret | None] = {}
        for name in dict.fromkeys((*(each.secret for each in spec.from_secrets), *spec.pull_secrets)):
            known[name] = await self._usable(name, owner)
        for each in spec.from_secrets:
            secret = known[each.secret]
            if secret is None:
                found.append(self._not_theirs("from_secrets", each.secret, owner))
            elif each.key is not None and each.key not in secret.data:
                said = f"the Secret '{shorten(each.secret)}' has no key '{shorten(each.key)}'"
                found.append(Refusal(keys=("from_secrets",), message=said))
        for name in spec.pull_secrets:
            secret = known[name]
            if secret is None:
                found.append(self._not_theirs("pull_secrets", name, owner))
            elif secret.type not in OF_REGISTRIES:
                said = f"the Secret '{shorten(name)}' has no credentials of a registry"
                found.append(
                    Refusal(keys=("pull_secrets",), message=said, hint="kubectl create secret docker-registry")
                )
        return found

    async def _usable(self, name: str, owner: tuple[str, str]) -> Secret | None:
        try:
            secret = await self._api.get(Secret, name, self._namespaces.of(*owner))
        except KubernetesNotFound:
            return None
        made_here = secret.labels.get(names.MANAGED) == names.PENSTOCK or names.TASK_ID in secret.labels
        of_a_job = any(each.kind == Job.kind.name for each in secret.metadata.owner_references)
        if made_here or of_a_job or secret.type in OF_THE_CLUSTER:
            return None
        own = self._namespaces.scope is None and name not in self._for_pulling
        return secret if own or names.is_for(owner[1], secret) else None

    def _not_theirs(self, key: str, name: str, owner: tuple[str, str]) -> Refusal:
        namespace, group = self._namespaces.of(*owner), owner[1]
        said = f"there is no Secret '{shorten(name)}' in {namespace} that jobs of group {group} may use"
        hint = None
        if self._namespaces.scope:
            hint = (
                f"who has rights in the cluster can allow it: kubectl annotate secret -n {namespace} {shorten(name)} "
            )
            hint += f"{names.GROUPS}={group}"
        return Refusal(keys=(key,), message=said, hint=hint)
