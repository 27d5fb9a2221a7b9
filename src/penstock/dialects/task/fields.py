"""Read the keys of a task that hold a single value."""

from __future__ import annotations

import re

from penstock.dialects.reader import ReadContext
from penstock.dialects.yaml import Node, Scalar
from penstock.domain.names import name_problem, shorten
from penstock.domain.quantities import NotAQuantity, parse_duration

NODES_LIMIT = 1000
SECONDS_LIMIT = 2**31 - 1
AT_ONCE = frozenset({"0", "0s"})
PATH_LIMIT = 4096
PRIORITY = re.compile(r"-?[0-9]{1,4}\Z", re.ASCII)
HIGHEST = 1000
REPOSITORY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.-]+@[\w.-]+:")


def job_name(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path)
    if text is None or context.found(name_problem(text, field=path, where=context.where(node))):
        return None
    return text


def nodes(context: ReadContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 1, NODES_LIMIT)


def duration(context: ReadContext, node: Node, path: str) -> int | None:
    text = context.text(node, path, "for example 12h")
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except NotAQuantity as error:
        context.problem(str(error), node, path, error.hint)
        return None
    if seconds > SECONDS_LIMIT:
        context.problem(
            f"'{shorten(text)}' is longer than {SECONDS_LIMIT:,} seconds, which no engine counts", node, path
        )
    return seconds


def duration_or_none(context: ReadContext, node: Node, path: str) -> int | None:
    """`0s` is "at once"."""
    return 0 if isinstance(node, Scalar) and node.text in AT_ONCE else duration(context, node, path)


def priority(context: ReadContext, node: Node, path: str) -> int | None:
    text = context.text(node, path, "for example 10")
    if text is None:
        return None
    if PRIORITY.match(text) and -HIGHEST <= int(text) <= HIGHEST:
        return int(text)
    message = f"must be a whole number from -{HIGHEST:,} to {HIGHEST:,}, not '{shorten(text)}'"
    context.problem(message, node, path, "for example 10; 0 is what others have")
    return None


def workdir(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path, "a directory on this machine; clone repositories in 'setup'")
    if text is None:
        return None
    if message := _not_a_directory(text):
        context.problem(message, node, path, "for example '.' for the directory of this file, or /data inside the job")
    return text


def _not_a_directory(text: str) -> str | None:
    if not text.strip():
        return "is empty"
    if not text.isprintable() or len(text.encode()) > PATH_LIMIT:
        return f"'{shorten(text)}' is not a path: printable, {PATH_LIMIT} bytes at most"
    if text.startswith("~"):
        return f"'{shorten(text)}' begins with '~', which is another place on every machine"
    if REPOSITORY.match(text):
        return f"'{shorten(text)}' is an address; only a directory can be sent (clone repositories in 'setup')"
    return None
