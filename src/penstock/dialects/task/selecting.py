"""`selectors`: which nodes will do, beside having what is asked for."""

from __future__ import annotations

from penstock.dialects.reading import Reading
from penstock.dialects.task.keys import Reader, read_keys
from penstock.dialects.task.labels import node_labels
from penstock.dialects.text import Node
from penstock.domain.names import VOLUME_REFERENCE, VOLUME_REFERENCE_LIMIT, shorten
from penstock.domain.users import EVERYTHING
from penstock.domain.workloads import Selectors

PRODUCT_LIMIT = 128


def node_name(reading: Reading, node: Node, path: str) -> str | None:
    """`pwm.all` is any node, as if nothing was said."""
    text = reading.text(node, path, "for example gpu01")
    if text is None or text == EVERYTHING:
        return None
    if len(text) > VOLUME_REFERENCE_LIMIT or not VOLUME_REFERENCE.match(text):
        reading.problem(f"'{shorten(text)}' is not a node's name", node, path, "for example gpu01")
        return None
    return text


def cpu_product(reading: Reading, node: Node, path: str) -> str | None:
    text = reading.text(node, path, "for example Xeon")
    if text is None or text == EVERYTHING:
        return None
    if not text.strip() or not text.isprintable() or len(text) > PRODUCT_LIMIT:
        message = f"'{shorten(text)}' names no CPU product: printable, {PRODUCT_LIMIT} characters at most"
        reading.problem(message, node, path, "for example Xeon")
        return None
    return text


def spread(reading: Reading, node: Node, path: str) -> bool | None:
    return reading.flag(node, path)


READERS: dict[str, Reader] = {
    "node": node_name,
    "cpu_product": cpu_product,
    "labels": node_labels,
    "spread": spread,
}


def selectors(reading: Reading, node: Node, path: str) -> Selectors:
    pairs = reading.pairs(node, path, "for example 'node: gpu01'")
    return Selectors(**read_keys(reading, pairs, READERS, (), f"{path}."))
