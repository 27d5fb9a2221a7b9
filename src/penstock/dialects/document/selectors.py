"""Read `selectors`: the node, the GPUs and the CPUs a workload asks for.

Without GPUs and CPUs it is one CPU of any product, as in PWM; with GPUs alone, the CPUs are whatever comes
with them. CPUs are the workload's own while it runs unless `exclusive` is false; `count: 0` asks for none.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.dialects.reader import FieldRules, PlacedContext, ReadContext, flag, placed, read_fields
from penstock.dialects.task.accelerators import ANY, GPUS_LIMIT, PRODUCT, PRODUCTS_LIMIT
from penstock.dialects.task.resources import cpus
from penstock.dialects.task.selectors import cpu_product, node_labels, node_name
from penstock.dialects.yaml import Items, Node, Scalar
from penstock.domain.names import shorten
from penstock.domain.users import EVERYTHING
from penstock.domain.workloads import Resources, Selectors

ONE_CPU = 1000
NO_CPU = 0


class SelectedNodes(NamedTuple):
    selectors: Selectors = Selectors()
    resources: Resources = Resources(cpus_milli=ONE_CPU, exclusive_cpus=True)
    """Only GPUs and CPUs."""


def selectors(context: PlacedContext, node: Node, path: str) -> SelectedNodes:
    context.says(node, path, "selectors")
    said = read_fields(context, node, path, SELECTORS)
    gpus, products = said.get("gpu", (0, ()))
    milli, exclusive, product = said.get("cpu", (None, False, None) if gpus else (ONE_CPU, True, None))
    return SelectedNodes(
        Selectors(
            node=said.get("node"),
            cpu_product=product,
            labels=said.get("label", {}),
            spread=said.get("spread", False),
        ),
        Resources(gpus=gpus, gpu_products=products, cpus_milli=milli, exclusive_cpus=exclusive),
    )


def _node(context: PlacedContext, node: Node, path: str) -> str | None:
    name: str | None = read_fields(context, node, path, NODE).get("name")
    return name


# gpu


def _gpu(context: PlacedContext, node: Node, path: str) -> tuple[int, tuple[str, ...]]:
    context.says(node, path, "resources", "accelerators")
    said = read_fields(context, node, path, GPU)
    count, products = said.get("count", 1), said.get("product_name", ())
    if products and not count:
        context.problem("chooses a GPU product and asks for no GPU", node, path, "for example 'count: 1'")
    return count, products


def _gpu_count(context: PlacedContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 0, GPUS_LIMIT)


def _gpu_products(context: PlacedContext, node: Node, path: str) -> tuple[str, ...]:
    """One, or a list of which any will do."""
    items = node.items if isinstance(node, Items) else [node]
    if not 0 < len(items) <= PRODUCTS_LIMIT:
        context.problem(f"must name 1 to {PRODUCTS_LIMIT} products", node, path, f"{EVERYTHING} is any")
    names = [context.text(item, path) for item in items[:PRODUCTS_LIMIT]]
    for item, name in zip(items, names, strict=False):
        if name is not None and not PRODUCT.match(name):
            hint = f"for example 'Quadro RTX 6000'; {EVERYTHING} is any"
            context.problem(f"'{shorten(name)}' names no GPU product", item, path, hint)
    found = tuple(dict.fromkeys(name for name in names if name is not None))
    return () if {EVERYTHING, ANY}.intersection(found) else found


# cpu


def _cpu(context: PlacedContext, node: Node, path: str) -> tuple[int | None, bool, str | None]:
    context.says(node, path, "resources", "cpus")
    said = read_fields(context, node, path, CPU)
    milli, exclusive = said.get("count", ONE_CPU), said.get("exclusive", True)
    if exclusive and milli % ONE_CPU:
        message = "is not a whole number of CPUs, and these are its own while it runs"
        context.problem(message, node, f"{path}.count", "write 'exclusive: false' beside it")
    return milli or None, exclusive and milli != NO_CPU, said.get("product_name")


def _cpu_count(context: ReadContext, node: Node, path: str) -> int | None:
    return NO_CPU if isinstance(node, Scalar) and node.text == "0" else cpus(context, node, path)


NODE = FieldRules({"name": placed(node_name, "selectors", "node")})
GPU = FieldRules({"product_name": _gpu_products, "count": _gpu_count})
CPU = FieldRules(
    {"product_name": placed(cpu_product, "selectors", "cpu_product"), "count": _cpu_count, "exclusive": flag}
)
SELECTORS = FieldRules(
    {
        "node": _node,
        "gpu": _gpu,
        "cpu": _cpu,
        "label": placed(node_labels, "selectors", "labels"),
        "spread": placed(flag, "selectors", "spread"),
    }
)
