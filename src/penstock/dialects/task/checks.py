"""Check combinations of keys that are valid alone and wrong together, in every way of writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.dialects.reader import ReadContext
from penstock.dialects.yaml import Node, Pairs, place
from penstock.domain.names import shorten
from penstock.domain.paths import WORKDIR, NotAMountPath, mount_path
from penstock.domain.workloads import UNLIMITED, Medium, Resources
from penstock.errors import Problem

Place = tuple[str | None, str]
"""A place in the text, and the full name of the field there."""


def nearest(places: Mapping[tuple[str, ...], Place], keys: tuple[str, ...]) -> Place | None:
    """Return the place of a key, or of the nearest above it."""
    ways = (keys[:length] for length in range(len(keys), -1, -1))
    return next((places[way] for way in ways if way in places), None)


Places = Callable[[tuple[str, ...]], Place]
"""Returns the place of a task's key in the text."""
Wrong = Callable[..., None]
"""Notes a problem: the message, a hint, and the keys it is about."""


def check_together(context: ReadContext, said: dict[str, Any], places: Places) -> None:
    def wrong(message: str, hint: str, *keys: str) -> None:
        where, field = places(keys)
        context.problems.append(Problem(message, where=where, field=field, hint=hint))

    if type(said.get("run")) is tuple and "setup" in said:
        message = f"cannot be there when '{places(('run',))[1]}' is a program and its arguments"
        wrong(message, "put it in the program, or write 'run' as a script", "setup")
    elif "setup" in said and "run" not in said and not context.problems:
        wrong("cannot be there without 'run': an image's own command has none before it", "write 'run', too", "setup")
    if "volumes" in said:
        _check_workdir(said, wrong)
        _check_scratch(said, wrong)
    if "array" in said:
        _check_array(said, wrong)
    if said.get("restart") and said.get("retries", UNLIMITED) != UNLIMITED:
        message = "cannot be counted: 'restart: always' starts it again however often it fails"
        wrong(message, "leave one of them out", "retries")


def _check_workdir(said: dict[str, Any], wrong: Wrong) -> None:
    mounts, scratch = said["volumes"]
    if said.get("workdir", "/").startswith("/") or all(there.path != WORKDIR for there in (*mounts, *scratch)):
        return
    wrong(f"'{WORKDIR}' is where the code of a relative workdir is", "mount the volume elsewhere", "volumes", WORKDIR)


def _check_scratch(said: dict[str, Any], wrong: Wrong) -> None:
    limit = said.get("resources", Resources()).memory_bytes
    for scratch in said["volumes"][1]:
        if scratch.medium is Medium.memory and limit and (scratch.size_bytes or 0) > limit:
            message = "is more memory than 'resources.memory' allows: what is in it counts there"
            wrong(message, "make it smaller, or the memory larger", "volumes", scratch.path, "size")


def _check_array(said: dict[str, Any], wrong: Wrong) -> None:
    if said.get("num_nodes", 1) > 1:
        wrong(f"cannot be together with 'num_nodes: {said['num_nodes']}'", "keep one of them", "array")
    if said.get("restart"):
        wrong("cannot be 'always' for an array, which ends when all its indexes have", "leave it out", "restart")


# of a task


def check_run(context: ReadContext, top: Pairs, said: dict[str, Any]) -> None:
    """Require `run` or an image, whose own command runs without it; a wrong `run` has its problem already."""
    image = said.get("resources", Resources()).image
    if "run" in said or image or any(problem.get("field", "").startswith("run") for problem in context.problems):
        return
    hint = "for example 'run: python train.py'"
    where = _document(context, top)
    context.problems.append(Problem("the commands to run are missing", where=where, field="run", hint=hint))


def _document(context: ReadContext, top: Pairs) -> str | None:
    """Return the place of the document: the file, or the line if the file has several."""
    if top.mark is None:
        return None
    return place(context.source, top.mark) if top.mark.line else shorten(context.source, 200)


def places_in(context: ReadContext, top: Pairs) -> Places:
    """Return a function that finds the place of a value by the keys that lead to it."""

    def found(keys: tuple[str, ...]) -> Place:
        node: Node = top
        for depth, key in enumerate(keys):
            inside = node.items if isinstance(node, Pairs) else []
            node = next((value for name, value in inside if _is(name.text, key, depth)), node)
        return context.where(node), ".".join(map(shorten, keys))

    return found


def _is(written: str, key: str, depth: int) -> bool:
    """Compare keys; below `volumes` they are paths, which have several spellings."""
    if depth != 1 or not written.startswith("/"):
        return written == key
    try:
        return mount_path(written) == key
    except NotAMountPath:
        return False
