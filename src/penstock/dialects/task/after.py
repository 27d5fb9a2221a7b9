"""Read `after` and `queue`: what a task waits for before it may start."""

from __future__ import annotations

from penstock.dialects.reader import ReadContext
from penstock.dialects.yaml import Items, Node
from penstock.domain.names import NAME, NAME_LIMIT, VOLUME_REFERENCE, shorten

AFTER_LIMIT = 100
QUEUE_LIMIT = 63
"""Kueue knows a workload's queue by a label, and a label's value is no longer."""
EXAMPLE = "for example 'after: prepare' or 'after: [prepare, abcd2345]'"


def after(context: ReadContext, node: Node, path: str) -> tuple[str, ...] | None:
    items = node.items if type(node) is Items else [node]
    if context.too_many(items, AFTER_LIMIT, node, path):
        return None
    found: dict[str, None] = {}
    for number, item in enumerate(items):
        field = path if item is node else f"{path}[{number}]"
        text = context.text(item, field, EXAMPLE)
        if text is None:
            continue
        if len(text) > NAME_LIMIT or not NAME.match(text):
            context.problem(f"'{shorten(text)}' is not a job's name or id", item, field, EXAMPLE)
        elif text in found:
            context.problem(f"'{text}' is here twice", item, field)
        found[text] = None
    return tuple(found)


def queue(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path, "for example 'queue: gpu-queue'")
    if text is None:
        return None
    if len(text) > QUEUE_LIMIT or not VOLUME_REFERENCE.match(text):
        context.problem(f"'{shorten(text)}' is not a queue's name", node, path, "for example 'queue: gpu-queue'")
    return text
