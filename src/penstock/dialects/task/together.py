"""Keys of a task that are right alone and wrong together."""

from __future__ import annotations

from typing import Any

from penstock.dialects.reading import Reading
from penstock.dialects.text import Node, Pairs, place
from penstock.domain.names import shorten
from penstock.domain.paths import WORKDIR, mount_path
from penstock.domain.workloads import UNLIMITED, Medium, Resources
from penstock.errors import Problem


def check_together(reading: Reading, top: Pairs, said: dict[str, Any]) -> None:
    _check_run(reading, top, said)
    if "volumes" in said:
        _check_workdir(reading, top, said)
        _check_scratch(reading, top, said)
    if "array" in said:
        _check_array(reading, top, said)
    if said.get("restart") and said.get("retries", UNLIMITED) != UNLIMITED:
        message = "cannot be counted: 'restart: always' starts it again however often it fails"
        reading.problem(message, _value(top, "retries"), "retries", "leave one of them out")


def _check_run(reading: Reading, top: Pairs, said: dict[str, Any]) -> None:
    """Without `run` there is no task; one that is there and wrong has its problem already."""
    run = said.get("run")
    if type(run) is tuple and "setup" in said:
        message = "cannot be there when 'run' is a program and its arguments"
        reading.problem(message, _value(top, "setup"), "setup", "put it in the program, or write 'run' as a script")
    if run is not None or any(problem.get("field", "").startswith("run") for problem in reading.problems):
        return
    hint = "for example 'run: python train.py'"
    where = _document(reading, top)
    reading.problems.append(Problem("the commands to run are missing", where=where, field="run", hint=hint))


def _document(reading: Reading, top: Pairs) -> str | None:
    """The file; where it has several documents, this one."""
    if top.mark is None:
        return None
    return place(reading.source, top.mark) if top.mark.line else shorten(reading.source, 200)


def _check_workdir(reading: Reading, top: Pairs, said: dict[str, Any]) -> None:
    mounts, scratch = said["volumes"]
    if said.get("workdir", "/").startswith("/") or all(there.path != WORKDIR for there in (*mounts, *scratch)):
        return
    message = f"'{WORKDIR}' is where the code of a relative workdir is"
    reading.problem(message, _value(top, "volumes"), f"volumes.{WORKDIR}", "mount the volume elsewhere")


def _check_scratch(reading: Reading, top: Pairs, said: dict[str, Any]) -> None:
    limit = said.get("resources", Resources()).memory_bytes
    for scratch in said["volumes"][1]:
        if scratch.medium is Medium.memory and limit and (scratch.size_bytes or 0) > limit:
            message = "is more memory than 'resources.memory' allows: what is in it counts there"
            field = f"volumes.{shorten(scratch.path)}.size"
            reading.problem(message, _size(top, scratch.path), field, "make it smaller, or the memory larger")


def _check_array(reading: Reading, top: Pairs, said: dict[str, Any]) -> None:
    if said.get("num_nodes", 1) > 1:
        message = f"cannot be together with 'num_nodes: {said['num_nodes']}'"
        reading.problem(message, _value(top, "array"), "array", "say one of them")
    if said.get("restart"):
        message = "cannot be 'always' for an array, which ends when all its indexes have"
        reading.problem(message, _value(top, "restart"), "restart", "leave it out")


def _size(top: Pairs, path: str) -> Node:
    volumes = _value(top, "volumes")
    entries = volumes.items if isinstance(volumes, Pairs) else []
    there = next(node for key, node in entries if isinstance(node, Pairs) and mount_path(key.text) == path)
    return _value(there, "size")


def _value(top: Pairs, key: str) -> Node:
    return next(node for name, node in top.items if name.text == key)
