"""What can never run in this cluster, said at submit and at the key it stands under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.domain.nodes import product_matches
from penstock.domain.workloads import Spec
from penstock.engines.base import Refusal
from penstock.engines.kubernetes.inventory import UNNAMED
from penstock.engines.refusing import ELSEWHERE, mounted_over_code, too_long

LARGEST_SPEC = 128 * 1024
"""It stands beside the Job, too, where a cluster keeps no more than 256 KiB."""
Products = Mapping[str, tuple[int, int]]
"""Product → how many there are, how many of them are free."""


def refusals(spec: Spec, products: Products, *, kueue: bool) -> list[Refusal]:
    return [
        *_no_command(spec),
        *_too_long(spec),
        *_unknown_products(spec, products),
        *_no_queue(spec, kueue=kueue),
        *mounted_over_code(spec),
        *_not_here(spec),
    ]


def _not_here(spec: Spec) -> list[Refusal]:
    """What Kubernetes knows nothing of, or decides by itself."""
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


def matching(wanted: Sequence[str], products: Products) -> tuple[str, ...]:
    """What the nodes call what the user wants; if no node has it now, the user's own words."""
    found = tuple(product for product in products if any(product_matches(each, product) for each in wanted))
    return found or tuple(each.replace(" ", "-") for each in wanted)


def _no_command(spec: Spec) -> list[Refusal]:
    """Something has to wait, or be there, before the program starts: only a program we start can be made to."""
    if spec.run is not None or (spec.nodes == 1 and (not spec.workdir or spec.workdir.startswith("/"))):
        return []
    said = "is missing: with several nodes or a workdir, the image's own command cannot be used"
    return [Refusal(keys=("run",), message=said, hint="name the program")]


def _too_long(spec: Spec) -> list[Refusal]:
    found = too_long(spec)
    if not found and len(spec.model_dump_json().encode()) > LARGEST_SPEC:
        found.append(Refusal(keys=(), message="the task is longer than 128 KiB", hint=ELSEWHERE))
    return found


def _unknown_products(spec: Spec, products: Products) -> list[Refusal]:
    unknown = [
        wanted
        for wanted in spec.resources.gpu_products
        if not any(product_matches(wanted, product) for product in products)
    ]
    if not spec.resources.gpu_products or len(unknown) < len(spec.resources.gpu_products):
        return []
    named = " or ".join(f"'{wanted}'" for wanted in unknown)
    there = [f"{product} ({free} of {total} free)" for product, (total, free) in products.items() if product != UNNAMED]
    if there:
        hint = f"there are: {', '.join(there)}"
    elif products:
        hint = "the nodes do not say which GPUs they have; ask for a number of them, as in 'accelerators: 1'"
    else:
        hint = "no node of this cluster has a GPU"
    return [Refusal(keys=("resources", "accelerators"), message=f"no node has a GPU {named}", hint=hint)]


def _no_queue(spec: Spec, *, kueue: bool) -> list[Refusal]:
    if not spec.queue or kueue:
        return []
    said = "this cluster has no queues: Kueue is not installed in it"
    return [Refusal(keys=("queue",), message=said, hint="leave it out; Kubernetes starts the job when there is room")]
