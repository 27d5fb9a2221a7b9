"""SkyPilot's `any_of` and `ordered`: alternative resources, of which any one will do.

One that was dropped would make a job without what it needs. What can be said here is a choice of GPU products, so
alternatives that differ in nothing else become that; any others are refused.
"""

from __future__ import annotations

from typing import Any

from penstock.dialects.reading import Reading
from penstock.dialects.text import Items, Node, Pairs

ANY_OF, ORDERED = "any_of", "ordered"
GPUS = "accelerators"


def alternatives(reading: Reading, node: Node, path: str) -> list[Pairs] | None:
    """The mappings of the list."""
    items = node.items if type(node) is Items else []
    found = [item for item in items if type(item) is Pairs]
    if found and len(found) == len(items):
        return found
    reading.problem(
        "must be a list of resources", node, path, "for example [{accelerators: A10:1}, {accelerators: L4:1}]"
    )
    return None


def merged(reading: Reading, said: dict[str, Any], each: list[dict[str, Any]], node: Node, path: str) -> dict[str, Any]:
    """What is asked for where `each` are the alternatives to what was `said` beside them."""
    wholes = [said | more for more in each]
    others = [{key: value for key, value in whole.items() if key != GPUS} for whole in wholes]
    counts = {(whole.get(GPUS) or (0, ()))[0] for whole in wholes}
    products = list(dict.fromkeys(product for whole in wholes for product in (whole.get(GPUS) or (0, ()))[1]))
    named = all((whole.get(GPUS) or (0, ()))[1] for whole in wholes)
    if all(whole == wholes[0] for whole in wholes):
        return wholes[0]
    if len(counts) > 1 or not named or any(other != others[0] for other in others):
        reading.problem(
            "differ in more than the GPU product, and only a choice of products can be had here",
            node,
            path,
            "say the one you want; a choice is 'accelerators: [A10:1, L4:1]'",
        )
    elif path.endswith(ORDERED):
        said_so = ", ".join(f"{product}:{next(iter(counts))}" for product in products)
        hint = f"where any of them will do, say 'accelerators: [{said_so}]'"
        reading.problem("is an order of preference, which cannot be kept here", node, path, hint)
    return wholes[0] | {GPUS: (counts.pop(), tuple(products))}
