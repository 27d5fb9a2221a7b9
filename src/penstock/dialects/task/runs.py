"""Read how often, how long, where from and in which order a task runs: nodes, array, retries, durations, `after`."""

from __future__ import annotations

import re

from penstock.dialects.reader import ReadContext, matching, one_or_more, parsed, whole
from penstock.dialects.task.keys import read_keys
from penstock.dialects.yaml import Node, Pairs, Scalar
from penstock.domain.names import NAME, NAME_LIMIT, VOLUME_REFERENCE, name_problem, shorten
from penstock.domain.quantities import parse_duration
from penstock.domain.workloads import UNLIMITED, Array

NODES_LIMIT = 1000
SECONDS_LIMIT = 2**31 - 1
AT_ONCE = frozenset({"0", "0s"})
PATH_LIMIT = 4096
HIGHEST = 1000
REPOSITORY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.-]+@[\w.-]+:")


def job_name(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path)
    if text is None or context.found(name_problem(text, field=path, where=context.where(node))):
        return None
    return text


nodes = whole(1, NODES_LIMIT)


_duration = parsed(parse_duration, "for example 12h")


def duration(context: ReadContext, node: Node, path: str) -> int | None:
    seconds = _duration(context, node, path)
    if seconds is not None and seconds > SECONDS_LIMIT and isinstance(node, Scalar):
        text = shorten(node.text)
        context.problem(f"'{text}' is longer than {SECONDS_LIMIT:,} seconds, which no engine counts", node, path)
    return seconds


def duration_or_none(context: ReadContext, node: Node, path: str) -> int | None:
    """Read a duration that may be 0."""
    return 0 if isinstance(node, Scalar) and node.text in AT_ONCE else duration(context, node, path)


priority = whole(-HIGHEST, HIGHEST)


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


COUNT_LIMIT = 10_000
ATTEMPTS_LIMIT = 1000
EXAMPLE = "for example 'array: 4' or 'array: {count: 100, parallelism: 8}'"


def array(context: ReadContext, node: Node, path: str) -> Array | None:
    if type(node) is Scalar:
        count = _count(context, node, path)
        return Array(count=count) if count else None
    pairs = context.pairs(node, path, EXAMPLE)
    said = read_keys(context, pairs, {"count": _count, "parallelism": _count}, (), f"{path}.")
    if "count" in said:
        return array_of(said["count"], said.get("parallelism"))
    if type(node) is Pairs and not any(key.text == "count" for key, _ in pairs):
        context.problem("must say how many", node, f"{path}.count", EXAMPLE)
    return None


def array_of(count: int, parallelism: int | None) -> Array:
    """Make an array; a parallelism that is no limit is left out."""
    return Array(count=count, parallelism=parallelism if parallelism and parallelism < count else None)


_count = whole(1, COUNT_LIMIT)


requeue = whole(0, ATTEMPTS_LIMIT)


def retries(context: ReadContext, node: Node, path: str) -> int | None:
    if type(node) is not Scalar or node.text[:1].isdigit():
        return requeue(context, node, path)
    if node.text == "unlimited":
        return UNLIMITED
    message = f"must be a whole number from 0 to {ATTEMPTS_LIMIT:,} or 'unlimited', not '{shorten(node.text)}'"
    context.problem(message, node, path, "for example 3")
    return None


def recovery(context: ReadContext, node: Node, path: str) -> None:
    """SkyPilot's `job_recovery`: restarts on errors are our `retries`, which the reader of the whole task takes. How
    it finds another place after a lost one is its cloud's business."""
    restarts = restarts_on_errors(node)
    for key, value in node.items if type(node) is Pairs else []:
        if key.text == "recover_on_exit_codes":
            hint = "'retries' counts all failures of the program, whatever their codes"
            context.problem(
                "cannot be had: no exit code is told apart from the others", value, f"{path}.{key.text}", hint
            )
    if restarts is None:
        context.notices.append(f"{path}: has no effect on this engine; 'requeue' at the top level has")
    elif restarts:
        context.notices.append(f"{path}: is taken as 'retries: {restarts.text}'")


def restarts_on_errors(node: Node) -> Scalar | None:
    items = node.items if type(node) is Pairs else []
    found = next((value for key, value in items if key.text == "max_restarts_on_errors"), None)
    return found if type(found) is Scalar else None


def restart(context: ReadContext, node: Node, path: str) -> bool | None:
    text = context.text(node, path, "for example 'restart: always'")
    if text is None:
        return None
    if text in ("always", "never"):
        return text == "always"
    after_failures = text.lower().replace("-", "").replace("_", "") == "onfailure"
    hint = "'retries: unlimited' starts it again when it fails" if after_failures else "for example 'restart: always'"
    context.problem(f"must be 'always' or 'never', not '{shorten(text)}'", node, path, hint)
    return None


AFTER_LIMIT = 100
QUEUE_LIMIT = 63
"""Kueue reads a workload's queue from a label, whose value cannot be longer."""
AFTER_EXAMPLE = "for example 'after: prepare' or 'after: [prepare, abcd2345]'"


def after(context: ReadContext, node: Node, path: str) -> tuple[str, ...] | None:
    items = one_or_more(node, path)
    if context.too_many(items, AFTER_LIMIT, node, path):
        return None
    found: dict[str, None] = {}
    for item, field in items:
        text = _other_job(context, item, field)
        if text in found:
            context.problem(f"'{text}' appears twice", item, field)
        elif text is not None:
            found[text] = None
    return tuple(found)


_other_job = matching(
    lambda text: len(text) <= NAME_LIMIT and NAME.match(text), "is not a job's name or id", AFTER_EXAMPLE
)
queue = matching(
    lambda text: len(text) <= QUEUE_LIMIT and VOLUME_REFERENCE.match(text),
    "is not a queue's name",
    "for example 'queue: gpu-queue'",
)
