"""Read `resources`: what each node asks for, with SkyPilot's `any_of` and `ordered`.

Dropping an alternative would make a job without what it needs. The one choice that can be expressed here is between GPU
products, so alternatives that differ in nothing else become that; any others are refused.

In `accelerators`, `2` and `any:2` are GPUs of any product; `A10`, `A10:1` and `{A10: 1}` are the same request; a
mapping or list of several means any one of them. YAML reads `{A10:1}` as a key without a value, so a key alone is
the request.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from penstock.dialects.reader import ReadContext, Reader, flag, parsed
from penstock.dialects.task.keys import IGNORED_RESOURCES, read_keys
from penstock.dialects.task.runs import recovery
from penstock.dialects.yaml import Items, Node, Pairs, Scalar, is_null
from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_bytes, parse_cpus
from penstock.domain.workloads import Requests, Resources

Wish = tuple[int, tuple[str, ...]]

GPUS_LIMIT = 1000
PRODUCTS_LIMIT = 50
PRODUCT = re.compile(r"[A-Za-z](?:[A-Za-z0-9 ._-]{0,62}[A-Za-z0-9])?\Z")
COUNT = re.compile(r"[0-9]{1,6}\Z")
ANY = "any"
EXAMPLE = "for example 2, A10:1 or [A10:1, L4:1]"


def accelerators(context: ReadContext, node: Node, path: str) -> Wish | None:
    if type(node) is Scalar:
        return _one(context, node, node.text, path)
    wishes: list[Wish | None] = []
    if type(node) is Pairs:
        wishes = [_pair(context, key, value, path) for key, value in node.items]
    elif type(node) is Items:
        texts = [(item, context.text(item, path, EXAMPLE)) for item in node.items]
        wishes = [None if text is None else _one(context, item, text, path) for item, text in texts]
    good = [wish for wish in wishes if wish is not None]
    if len(good) < len(wishes):
        return None
    return _any_of(context, node, path, good)


def _any_of(context: ReadContext, node: Node, path: str, wishes: list[Wish]) -> Wish | None:
    counts = {count for count, _ in wishes}
    products = tuple(dict.fromkeys(product for _, named in wishes for product in named))
    if not 0 < len(wishes) <= PRODUCTS_LIMIT:
        context.problem(f"must name 1 to {PRODUCTS_LIMIT} products", node, path, EXAMPLE)
    elif len(counts) > 1:
        context.problem("must ask for the same number of each product", node, path, "for example [A10:2, L4:2]")
    elif len(wishes) > 1 and not all(named for _, named in wishes):
        context.problem("must name a product in each of several", node, path, EXAMPLE)
    else:
        return counts.pop(), products
    return None


def _pair(context: ReadContext, key: Scalar, value: Node, path: str) -> Wish | None:
    if is_null(value):
        return _one(context, key, key.text, path)
    if type(value) is not Scalar:
        context.problem("must be a number of GPUs", value, f"{path}.{shorten(key.text)}", EXAMPLE)
        return None
    return _one(context, value, f"{key.text}:{value.text}", path)


def _one(context: ReadContext, node: Node, text: str, path: str) -> Wish | None:
    """Read `2`, `any`, `any:2`, `A10` or `A10:1`."""
    product, colon, number = text.rpartition(":")
    if not colon:
        product, number = ("", text) if text[:1].isdigit() or text[:1] in "+-." else (text, "1")
    product, number = product.strip(), number.strip()
    least = 1 if product else 0
    if (product or colon) and not PRODUCT.match(product):
        context.problem(f"'{shorten(text)}' names no GPU product", node, path, EXAMPLE)
    elif not COUNT.match(number) or not least <= int(number) <= GPUS_LIMIT:
        message = f"'{shorten(text)}' is not a number of GPUs: they are given whole, {least} to {GPUS_LIMIT:,}"
        context.problem(message, node, path, EXAMPLE)
    else:
        return int(number), (product,) if product and product != ANY else ()
    return None


ANY_OF, ORDERED = "any_of", "ordered"
GPUS = "accelerators"


def alternatives(context: ReadContext, node: Node, path: str) -> list[Pairs] | None:
    items = node.items if type(node) is Items else []
    found = [item for item in items if type(item) is Pairs]
    if found and len(found) == len(items):
        return found
    context.problem(
        "must be a list of resources", node, path, "for example [{accelerators: A10:1}, {accelerators: L4:1}]"
    )
    return None


def merged(
    context: ReadContext, said: dict[str, Any], each: list[dict[str, Any]], node: Node, path: str
) -> dict[str, Any]:
    """Return the resources for the alternatives in `each`, with what was `said` beside them."""
    wholes = [said | more for more in each]
    others = [{key: value for key, value in whole.items() if key != GPUS} for whole in wholes]
    wishes: list[Wish] = [whole.get(GPUS) or (0, ()) for whole in wholes]
    counts = {count for count, _ in wishes}
    products = list(dict.fromkeys(product for _, named in wishes for product in named))
    if all(whole == wholes[0] for whole in wholes):
        return wholes[0]
    if len(counts) > 1 or not all(named for _, named in wishes) or any(other != others[0] for other in others):
        context.problem(
            "differ in more than the GPU product, and only a choice of products can be had here",
            node,
            path,
            "say the one you want; a choice is 'accelerators: [A10:1, L4:1]'",
        )
    elif path.endswith(ORDERED):
        said_so = ", ".join(f"{product}:{next(iter(counts))}" for product in products)
        hint = f"where any of them will do, say 'accelerators: [{said_so}]'"
        context.problem("is an order of preference, which cannot be kept here", node, path, hint)
    return wholes[0] | {GPUS: (counts.pop(), tuple(products))}


IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,511}\Z")
NEARLY = re.compile(r"(?=.*[1-9])([0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\+?|([KMGTPE]i|[kMGTPE])\+)\Z")
"""A number without a unit, or SkyPilot's "at least"."""
BARE = re.compile(r"[0-9]{1,12}\Z")
SMALLEST_MEMORY = 1024**2


_cpus = parsed(parse_cpus, "for example 4")


def cpus(context: ReadContext, node: Node, path: str) -> int | None:
    milli = _cpus(context, node, path)
    if milli is not None and isinstance(node, Scalar) and node.text.endswith("+"):
        context.notices.append(f"{path}: {node.text} is taken as {node.text[:-1]}")
    return milli


def _parse_memory(text: str) -> int:
    try:
        amount = parse_bytes(text, bare=False)
    except NotAQuantity as error:
        found = NEARLY.match(text)
        if not found:
            raise
        raise NotAQuantity(
            str(error) if found[2] else f"'{text}' has no unit", f"write {found[1]}{found[2] or 'Gi'}"
        ) from None
    if amount < SMALLEST_MEMORY:
        raise NotAQuantity(f"'{shorten(text)}' is less than any program needs", "for example 512Mi")
    return amount


memory = parsed(_parse_memory, "for example 16Gi")
disk = parsed(lambda text: parse_bytes(f"{text}Gi" if BARE.match(text) else text), "for example 100Gi")
"""Reads a size of disk; a bare number is GiB, as in SkyPilot."""


def image(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path, "for example python:3.13-slim")
    if text is None:
        return None
    name = text.removeprefix("docker:")
    if not IMAGE.match(name):
        context.problem(f"'{shorten(text)}' is not an image", node, path, "for example python:3.13-slim")
    return name


REQUESTS: dict[str, Reader] = {"cpus": cpus, "memory": memory, "disk_size": disk}
LIMITS = {"cpus": "cpus_milli", "memory": "memory_bytes", "disk_size": "disk_bytes"}


def requests(context: ReadContext, node: Node, path: str) -> dict[str, tuple[int, Node]]:
    """Return requests by key with their places: they are compared with the limits when all are read."""
    pairs = context.pairs(node, path, "for example 'memory: 4Gi'")
    said = read_keys(context, pairs, REQUESTS, (), f"{path}.")
    return {key.text: (said[key.text], value) for key, value in pairs if key.text in said}


def machine(context: ReadContext, node: Node, path: str) -> bool:
    """Note that a machine is named: by itself it says nothing here of what the job needs."""
    context.notices.append(f"{path}: has no effect on this engine")
    return True


READERS: dict[str, Reader] = {
    "cpus": cpus,
    "exclusive_cpus": flag,
    "memory": memory,
    "disk_size": disk,
    "ephemeral_storage": disk,
    "accelerators": accelerators,
    "gpus": accelerators,
    "image_id": image,
    "requests": requests,
    "any_of": alternatives,
    "ordered": alternatives,
    "job_recovery": recovery,
    "instance_type": machine,
}
MACHINE = "instance_type"
MACHINES_SIZE = frozenset({"accelerators", "cpus", "memory"})
SIZE = "say the accelerators, cpus or memory that the job needs"
SAME = {"gpus": "accelerators", "ephemeral_storage": "disk_size"}
"""SkyPilot's synonyms."""
BESIDE = frozenset({ANY_OF, ORDERED, "job_recovery"})
"""Keys that hold for all alternatives together."""


def resources(context: ReadContext, node: Node, path: str) -> Resources:
    said = _said(context, context.pairs(node, path, "for example 'cpus: 4'"), node, path)
    machines = [MACHINE in said]
    if ANY_OF in said and ORDERED in said:
        context.problem(f"says '{ANY_OF}' as well: only one of them can be meant", node, f"{path}.{ORDERED}")
    for key in (ANY_OF, ORDERED):
        if key in said:
            here = f"{path}.{key}"
            each = [_alternative(context, found, f"{here}[{n}]") for n, found in enumerate(said.pop(key))]
            machines += [MACHINE in one for one in each]
            said = said if context.problems else merged(context, said, each, node, here)
    if any(machines) and not said.keys() & MACHINES_SIZE:
        context.problem(
            "names a machine of a cloud, and says not what is needed of it", node, f"{path}.{MACHINE}", SIZE
        )
    _check_exclusive(context, said, node, path)
    count, products = said.get("accelerators") or (0, ())
    limits = {field: said.get(key) for key, field in LIMITS.items()}
    return Resources(
        cpus_milli=limits["cpus_milli"],
        memory_bytes=limits["memory_bytes"],
        disk_bytes=limits["disk_bytes"],
        requests=requests_below(context, said.get("requests", {}), limits, f"{path}.requests"),
        gpus=count,
        gpu_products=products,
        exclusive_cpus=said.get("exclusive_cpus", False),
        image=said.get("image_id"),
    )


def _alternative(context: ReadContext, found: Pairs, path: str) -> dict[str, Any]:
    for key, value in found.items:
        if key.text in BESIDE:
            hint = f"say '{key.text}' beside the alternatives"
            context.problem("cannot be had in one alternative alone", value, f"{path}.{key.text}", hint)
    return _said(context, [pair for pair in found.items if pair[0].text not in BESIDE], found, path)


def _said(context: ReadContext, pairs: Collection[tuple[Scalar, Node]], node: Node, path: str) -> dict[str, Any]:
    said = read_keys(context, pairs, READERS, IGNORED_RESOURCES, f"{path}.")
    for word, usual in SAME.items():
        if word in said:
            if usual in said:
                context.problem(f"is the same as '{usual}'; keep one of them", node, f"{path}.{word}")
            said[usual] = said.pop(word)
    return said


def _check_exclusive(context: ReadContext, said: dict[str, Any], node: Node, path: str) -> None:
    if not said.get("exclusive_cpus") or said.get("cpus", 1) % 1000 == 0:
        return
    message = "are whole CPUs that nobody else gets meanwhile: say how many"
    context.problem(message, node, f"{path}.exclusive_cpus", f"for example '{path}.cpus: 4'")


def requests_below(
    context: ReadContext, wanted: dict[str, tuple[int, Node]], limits: dict[str, int | None], path: str
) -> Requests:
    """Return the requests that are less than their limits; one beyond its limit is a problem."""
    if not wanted:
        return NO_REQUESTS
    kept = {}
    for key, (amount, node) in wanted.items():
        limit = limits[LIMITS[key]]
        if limit is not None and amount > limit:
            hint = f"at most what 'resources.{key}' says"
            context.problem("asks for more than the limit", node, f"{path}.{key}", hint)
        if amount != limit:
            kept[LIMITS[key]] = amount
    return Requests(**kept)


NO_REQUESTS = Requests()
