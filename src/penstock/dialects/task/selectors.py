"""Read `selectors` and `labels`: which nodes may be used, and how containers are marked."""

from __future__ import annotations

import re

from penstock.dialects.reader import ReadContext, Reader, flag, matching
from penstock.dialects.task.keys import read_keys
from penstock.dialects.yaml import Node, Scalar
from penstock.domain.names import VOLUME_REFERENCE, VOLUME_REFERENCE_LIMIT, shorten
from penstock.domain.policy import EVERYTHING
from penstock.domain.workloads import Selectors

LABELS_LIMIT = 100
KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
NODE_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
"""As in Kubernetes, where nodes are found by them, too."""
CHARACTERS = "letters, digits, '-', '_' and '.', 63 at most, a letter or digit first and last"
VALUE_LIMIT = 1024
OURS = "penstock."
EXAMPLE = "for example 'team: vision'"


def labels(context: ReadContext, node: Node, path: str) -> dict[str, str]:
    return read_labels(context, context.pairs(node, path, EXAMPLE), node, path)


def read_labels(context: ReadContext, pairs: list[tuple[Scalar, Node]], node: Node, path: str) -> dict[str, str]:
    found = _labels(context, pairs, node, path)
    for key, value in pairs:
        here = f"{path}.{shorten(key.text)}"
        if key.text.startswith(OURS):
            context.problem("is one of Penstock's own labels", key, here, "choose another name")
        elif len(found.get(key.text, "").encode()) > VALUE_LIMIT or not found.get(key.text, "").isprintable():
            context.problem(f"must be printable, {VALUE_LIMIT:,} bytes at most", value, here)
    return found


def node_labels(context: ReadContext, node: Node, path: str) -> dict[str, str]:
    """Read the labels that a node has or is chosen by."""
    pairs = context.pairs(node, path, "for example 'rack: a'")
    found = _labels(context, pairs, node, path)
    for key, value in pairs:
        if not NODE_VALUE.match(found.get(key.text, "")):
            message = f"'{shorten(found[key.text])}' is not a label's value: {CHARACTERS}"
            context.problem(message, value, f"{path}.{shorten(key.text)}")
    return found


def _labels(context: ReadContext, pairs: list[tuple[Scalar, Node]], node: Node, path: str) -> dict[str, str]:
    if context.too_many(pairs, LABELS_LIMIT, node, path):
        return {}
    found: dict[str, str] = {}
    for key, value in pairs:
        here = f"{path}.{shorten(key.text)}"
        text = context.text(value, here)
        if not KEY.match(key.text):
            message = f"'{shorten(key.text)}' is not a label's name: {CHARACTERS}"
            context.problem(message, key, here, "for example team, or example.com/team")
        elif text is not None:
            found[key.text] = text
    return found


PRODUCT_LIMIT = 128


_node_name = matching(
    lambda text: text == EVERYTHING or (len(text) <= VOLUME_REFERENCE_LIMIT and VOLUME_REFERENCE.match(text)),
    "is not a node's name",
    "for example gpu01",
)
_cpu_product = matching(
    lambda text: text.strip() and text.isprintable() and len(text) <= PRODUCT_LIMIT,
    f"names no CPU product: printable, {PRODUCT_LIMIT} characters at most",
    "for example Xeon",
)


def node_name(context: ReadContext, node: Node, path: str) -> str | None:
    """Read a node's name; `pwm.all` is any node."""
    return _unless_any(_node_name(context, node, path))


def cpu_product(context: ReadContext, node: Node, path: str) -> str | None:
    return _unless_any(_cpu_product(context, node, path))


def _unless_any(name: str | None) -> str | None:
    return None if name == EVERYTHING else name


READERS: dict[str, Reader] = {
    "node": node_name,
    "cpu_product": cpu_product,
    "labels": node_labels,
    "spread": flag,
}


def selectors(context: ReadContext, node: Node, path: str) -> Selectors:
    pairs = context.pairs(node, path, "for example 'node: gpu01'")
    return Selectors(**read_keys(context, pairs, READERS, (), f"{path}."))
