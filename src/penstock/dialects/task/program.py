"""Read `setup` and `run`: scripts for bash or, for `run`, a program and its arguments."""

from __future__ import annotations

from penstock.dialects.reader import ReadContext
from penstock.dialects.yaml import Items, Node, is_null

SCRIPT_LIMIT = 256 * 1024
ARGUMENTS_LIMIT = 1000
ARGUMENT_LIMIT = 128 * 1024
"""With the byte that ends it: Linux starts no program with a longer one."""
TOO_LONG = "put the code in workdir or a volume"
EXAMPLE = "for example 'run: python train.py'"


def setup(context: ReadContext, node: Node, path: str) -> str | None:
    text = _script(context, node, path)
    return text if text and text.strip() else None


def run(context: ReadContext, node: Node, path: str) -> str | tuple[str, ...] | None:
    if type(node) is Items:
        return arguments(context, node, path, EXAMPLE)
    text = _script(context, node, path)
    if text is not None and not text.strip():
        context.problem("is empty", node, path, EXAMPLE)
    return text


def _script(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path, f"write '{path}: |' and the commands below it, indented")
    if text is None:
        return None
    if "\0" in text:
        context.problem("has a NUL character in it", node, path)
    elif len(text.encode()) > SCRIPT_LIMIT:
        context.problem(f"is longer than {SCRIPT_LIMIT // 1024} KiB", node, path, TOO_LONG)
    return text


def arguments(context: ReadContext, node: Items, path: str, example: str) -> tuple[str, ...] | None:
    """A program and its arguments, each a text as it was written."""
    before = len(context.problems)
    if not 1 <= len(node.items) <= ARGUMENTS_LIMIT:
        context.problem(f"has {len(node.items):,} items; 1 to {ARGUMENTS_LIMIT:,} can be", node, path, example)
        return None
    found = [argument(context, item, f"{path}[{number}]") for number, item in enumerate(node.items)]
    if len(context.problems) > before:
        return None
    if not found[0].strip():
        context.problem("names no program", node.items[0], f"{path}[0]", example)
    elif sum(len(text.encode()) + 1 for text in found) > SCRIPT_LIMIT:
        context.problem(f"is longer than {SCRIPT_LIMIT // 1024} KiB in all", node, path, TOO_LONG)
    return tuple(found)


def argument(context: ReadContext, node: Node, path: str) -> str:
    if is_null(node):
        context.problem("has no value", node, path, "write '' for an empty argument")
        return ""
    text = context.text(node, path) or ""
    if "\0" in text:
        context.problem("has a NUL character in it", node, path)
    elif len(text.encode()) >= ARGUMENT_LIMIT:
        context.problem(f"is longer than {ARGUMENT_LIMIT // 1024} KiB", node, path, TOO_LONG)
    return text
