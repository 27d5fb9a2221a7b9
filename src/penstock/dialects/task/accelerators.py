"""Read `accelerators`: how many GPUs a node asks for, and which products will do.

`2` and `any:2` are GPUs of any product; `A10`, `A10:1` and `{A10: 1}` are one wish; a mapping or list of several means
any one of them. YAML reads `{A10:1}` as a key without a value, so a key alone is taken as the whole wish.
"""

from __future__ import annotations

import re

from penstock.dialects.reader import ReadContext
from penstock.dialects.yaml import Items, Node, Pairs, Scalar, is_null
from penstock.domain.names import shorten

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
        wishes = [_item(context, item, path) for item in node.items]
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


def _item(context: ReadContext, item: Node, path: str) -> Wish | None:
    text = context.text(item, path, EXAMPLE)
    return None if text is None else _one(context, item, text, path)


def _one(context: ReadContext, node: Node, text: str, path: str) -> Wish | None:
    """`2`, `any`, `any:2`, `A10`, `A10:1`."""
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
