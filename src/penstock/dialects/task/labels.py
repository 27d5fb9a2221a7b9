"""`labels`: what containers are marked with, and what nodes are chosen by."""

from __future__ import annotations

import re

from penstock.dialects.reading import Reading
from penstock.dialects.text import Node, Scalar
from penstock.domain.names import shorten

LABELS_LIMIT = 100
KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
NODE_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
"""As Kubernetes has them: nodes are found by them there, too."""
CHARACTERS = "letters, digits, '-', '_' and '.', 63 at most, a letter or digit first and last"
VALUE_LIMIT = 1024
OURS = "penstock."
EXAMPLE = "for example 'team: vision'"


def labels(reading: Reading, node: Node, path: str) -> dict[str, str]:
    """What a workload's containers are marked with."""
    return read_labels(reading, reading.pairs(node, path, EXAMPLE), node, path)


def read_labels(reading: Reading, pairs: list[tuple[Scalar, Node]], node: Node, path: str) -> dict[str, str]:
    found = _labels(reading, pairs, node, path)
    for key, value in pairs:
        here = f"{path}.{shorten(key.text)}"
        if key.text.startswith(OURS):
            reading.problem("is one of Penstock's own labels", key, here, "choose another name")
        elif len(found.get(key.text, "").encode()) > VALUE_LIMIT or not found.get(key.text, "").isprintable():
            reading.problem(f"must be printable, {VALUE_LIMIT:,} bytes at most", value, here)
    return found


def node_labels(reading: Reading, node: Node, path: str) -> dict[str, str]:
    """What a node is marked with, or chosen by."""
    pairs = reading.pairs(node, path, "for example 'rack: a'")
    found = _labels(reading, pairs, node, path)
    for key, value in pairs:
        if not NODE_VALUE.match(found.get(key.text, "")):
            message = f"'{shorten(found[key.text])}' is not a label's value: {CHARACTERS}"
            reading.problem(message, value, f"{path}.{shorten(key.text)}")
    return found


def _labels(reading: Reading, pairs: list[tuple[Scalar, Node]], node: Node, path: str) -> dict[str, str]:
    if len(pairs) > LABELS_LIMIT:
        reading.problem(f"has {len(pairs):,} entries; {LABELS_LIMIT} at most", node, path)
        return {}
    found: dict[str, str] = {}
    for key, value in pairs:
        here = f"{path}.{shorten(key.text)}"
        text = reading.text(value, here)
        if not KEY.match(key.text):
            message = f"'{shorten(key.text)}' is not a label's name: {CHARACTERS}"
            reading.problem(message, key, here, "for example team, or example.com/team")
        elif text is not None:
            found[key.text] = text
    return found
