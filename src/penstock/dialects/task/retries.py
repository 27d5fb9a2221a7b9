"""Read `array`, `retries`, `requeue` and `restart`: how often the same thing runs."""

from __future__ import annotations

from penstock.dialects.reader import ReadContext
from penstock.dialects.task.keys import read_keys
from penstock.dialects.yaml import Node, Pairs, Scalar
from penstock.domain.names import shorten
from penstock.domain.workloads import UNLIMITED, Array

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
    """All at once is not a limit: it is said as none."""
    return Array(count=count, parallelism=parallelism if parallelism and parallelism < count else None)


def _count(context: ReadContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 1, COUNT_LIMIT)


def retries(context: ReadContext, node: Node, path: str) -> int | None:
    if type(node) is not Scalar or node.text[:1].isdigit():
        return context.whole(node, path, 0, ATTEMPTS_LIMIT)
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


def requeue(context: ReadContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 0, ATTEMPTS_LIMIT)


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
