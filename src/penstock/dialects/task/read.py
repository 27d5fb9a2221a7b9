"""A task's text to a Spec: one pass over its keys, all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.dialects.reading import Reading
from penstock.dialects.task.envs import envs, merged
from penstock.dialects.task.fields import duration, job_name, nodes, run, setup, workdir
from penstock.dialects.task.keys import IGNORED, Reader, read_keys
from penstock.dialects.task.mounts import mounts
from penstock.dialects.task.resources import resources
from penstock.dialects.text import Node, Pairs, from_values, invalid, place, read_mapping
from penstock.domain.names import name_problem, shorten
from penstock.domain.paths import WORKDIR
from penstock.domain.workloads import Spec
from penstock.errors import Invalid, Problem

READERS: dict[str, Reader] = {
    "name": job_name,
    "num_nodes": nodes,
    "workdir": workdir,
    "resources": resources,
    "envs": envs,
    "secrets": envs,
    "volumes": mounts,
    "setup": setup,
    "run": run,
    "max_duration": duration,
}
SPEC_FIELDS = {"num_nodes": "nodes", "volumes": "mounts"}
SECRETS = "secrets: are passed like envs, and kept and shown with the job"


class Task(NamedTuple):
    """What was asked for, and what the one who asked should be told."""

    spec: Spec
    notices: tuple[str, ...] = ()
    text: Pairs | None = None
    source: str = ""

    def where(self, *keys: str) -> str | None:
        """The place of a key in the text, or of the nearest one above it: for what is wrong beyond the text."""
        node: Node | None = self.text
        found = None
        for key in keys:
            inside = node.items if isinstance(node, Pairs) else []
            name, node = next(((name, node) for name, node in inside if name.text == key), (None, None))
            found = place(self.source, name.mark) if name else found
        return found


def read_task(
    text: str | bytes, source: str, *, name: str | None = None, envs: Mapping[str, str] | None = None
) -> Task:
    """`name` and `envs` are what the command line said; they win over the file."""
    pairs, problems = read_mapping(text, source)
    return _task(pairs, Reading(source, problems), name, envs or {})


def read_task_json(body: Mapping[str, Any]) -> Task:
    """Document 001's JSON body: the same keys by the same rules."""
    node = from_values(body)
    if not isinstance(node, Pairs):
        raise Invalid("The task must be a JSON object.")
    return _task(node, Reading("The task"), None, {})


def _task(top: Pairs, reading: Reading, name: str | None, overrides: Mapping[str, str]) -> Task:
    if name is not None:
        top = Pairs([pair for pair in top.items if pair[0].text != "name"], top.mark)
        reading.found(name_problem(name, field="--name"))
    said = read_keys(reading, top.items, READERS, IGNORED, "")
    if name is not None:
        said["name"] = name
    if "secrets" in said:
        reading.notices.append(SECRETS)
    said["envs"] = merged(reading, said.pop("envs", {}), said.pop("secrets", {}), overrides)
    _check_run(reading, top, said)
    _check_workdir(reading, top, said)
    if reading.problems:
        raise invalid(reading.source, reading.problems)
    spec = Spec(**{SPEC_FIELDS.get(key, key): value for key, value in said.items()})
    return Task(spec, tuple(reading.notices), top, reading.source)


def _check_run(reading: Reading, top: Pairs, said: dict[str, Any]) -> None:
    """Without `run` there is no task; one that is there and wrong has its problem already."""
    if "run" in said or any(problem.get("field") == "run" for problem in reading.problems):
        return
    where = shorten(reading.source, 200) if top.mark else None
    hint = "for example 'run: python train.py'"
    reading.problems.append(Problem("the commands to run are missing", where=where, field="run", hint=hint))


def _check_workdir(reading: Reading, top: Pairs, said: dict[str, Any]) -> None:
    if said.get("workdir", "/").startswith("/") or all(mount.path != WORKDIR for mount in said.get("volumes", ())):
        return
    volumes = next(node for key, node in top.items if key.text == "volumes")
    message = f"'{WORKDIR}' is where the code of a relative workdir is"
    reading.problem(message, volumes, f"volumes.{WORKDIR}", "mount the volume elsewhere")
