"""Read a task's text into a Spec and report all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.dialects.reader import Place, ReadContext, Reader, flag, nearest
from penstock.dialects.task.keys import IGNORED, RESOURCES, read_keys
from penstock.dialects.task.mounts import mounts
from penstock.dialects.task.notify import notify
from penstock.dialects.task.program import envs, merged, ports, run, setup
from penstock.dialects.task.resources import resources
from penstock.dialects.task.runs import (
    after,
    array,
    duration,
    duration_or_none,
    job_name,
    nodes,
    priority,
    queue,
    requeue,
    restart,
    restarts_on_errors,
    retries,
    workdir,
)
from penstock.dialects.task.selectors import labels, selectors
from penstock.dialects.yaml import Items, Node, Pairs, Scalar, from_values, invalid, place, read_mapping
from penstock.domain.names import name_problem, shorten
from penstock.domain.paths import WORKDIR, NotAMountPath, mount_path
from penstock.domain.workloads import UNLIMITED, Medium, Resources, Spec
from penstock.errors import Invalid, Problem

READERS: dict[str, Reader] = {
    "name": job_name,
    "num_nodes": nodes,
    "array": array,
    "after": after,
    "queue": queue,
    "workdir": workdir,
    "resources": resources,
    "selectors": selectors,
    "labels": labels,
    "envs": envs,
    "secrets": envs,
    "volumes": mounts,
    "setup": setup,
    "run": run,
    "terminal": flag,
    "ports": ports,
    "max_duration": duration,
    "stop_grace": duration_or_none,
    "retries": retries,
    "requeue": requeue,
    "restart": restart,
    "ttl": duration_or_none,
    "priority": priority,
    "idle_timeout": duration,
    "notify": notify,
}
SECRETS = "secrets: are passed like envs and kept with the job; what shows the job masks them"


class Task(NamedTuple):
    """A task as a Spec, with notices for whoever submits it."""

    spec: Spec
    notices: tuple[str, ...] = ()
    text: Pairs | None = None
    source: str = ""
    places: Mapping[tuple[str, ...], Place] | None = None
    """The places of a task's keys in a text with other keys, set by the other dialects."""

    def where(self, *keys: str) -> str | None:
        """Return the place of a key in the text, or of the nearest above it, for problems found beyond the text."""
        if self.places is not None:
            return self._place(keys)[0]
        node: Node | None = self.text
        found = None
        for key in keys:
            name, node = next(((name, node) for name, node in _inside(node) if name.text == key), (None, None))
            found = place(self.source, name.mark) if name else found
        return found

    def field(self, *keys: str) -> str:
        """Return the key as the author of the text knows it."""
        return ".".join(keys) if self.places is None else self._place(keys)[1]

    def problem(self, message: str, *keys: str, hint: str | None = None) -> Problem:
        """Say what is wrong with the value of a key, where it stands in the text."""
        return Problem(message, where=self.where(*keys), field=self.field(*keys), hint=hint)

    def in_its_words(self, notice: str) -> str:
        """Return a notice about a task's key, with the key as the author of the text knows it."""
        key, colon, said = notice.partition(": ")
        if self.places is None or not colon or key not in (*READERS, *RESOURCES):
            return notice
        return f"{self.field(key) if key in READERS else self.field('resources', key)}: {said}"

    def _place(self, keys: tuple[str, ...]) -> Place:
        return nearest(self.places or {}, keys) or (None, ".".join(keys))


def _inside(node: Node | None) -> list[tuple[Scalar, Node | None]]:
    """Return what is below a key: other keys with their values, or the words of a list."""
    if isinstance(node, Pairs):
        return list(node.items)
    return [(item, None) for item in node.items if isinstance(item, Scalar)] if isinstance(node, Items) else []


def read_task(
    text: str | bytes, source: str, *, name: str | None = None, envs: Mapping[str, str] | None = None
) -> Task:
    """Read a task; `name` and `envs` come from the command line and win over the file."""
    pairs, problems = read_mapping(text, source)
    return _right(ReadContext(source, problems), pairs, name, envs or {})


def read_task_json(body: Mapping[str, Any]) -> Task:
    """Read k8s-cli's JSON body: the same keys by the same rules."""
    node = from_values(body)
    if not isinstance(node, Pairs):
        raise Invalid("The task must be a JSON object.")
    return _right(ReadContext("The task"), node, None, {})


def _right(context: ReadContext, top: Pairs, name: str | None, overrides: Mapping[str, str]) -> Task:
    task = task_of(context, top, name, overrides)
    if task is None:
        raise invalid(context.source, context.problems)
    return task


def task_of(
    context: ReadContext, top: Pairs, name: str | None = None, overrides: Mapping[str, str] | None = None
) -> Task | None:
    """Read a task; return None if there is a problem, which is noted in `context`."""
    if name is not None:
        top = Pairs([pair for pair in top.items if pair[0].text != "name"], top.mark)
        context.found(name_problem(name, field="--name"))
    said = read_keys(context, top.items, READERS, IGNORED, "")
    if name is not None:
        said["name"] = name
    if "retries" not in said and (restarts := _restarts(context, top)) is not None:
        said["retries"] = restarts
    if "secrets" in said:
        context.notices.append(SECRETS)
    secrets = said.pop("secrets", {})
    said["envs"] = merged(context, said.pop("envs", {}), secrets, overrides or {})
    said["secrets"] = tuple(sorted(secrets))
    check_run(context, top, said)
    check_together(context, said, places_in(context, top))
    return None if context.problems else Task(spec_of(said), tuple(context.notices), top, context.source)


def _restarts(context: ReadContext, top: Pairs) -> int | None:
    """Return how often `resources.job_recovery` restarts after errors."""
    below = next((node for key, node in top.items if key.text == "resources"), None)
    recovery = next((node for name, node in _inside(below) if name.text == "job_recovery"), None)
    found = restarts_on_errors(recovery) if recovery else None
    return retries(context, found, "resources.job_recovery.max_restarts_on_errors") if found else None


def spec_of(said: dict[str, Any]) -> Spec:
    """Make a Spec of the values of a task's keys, which are valid together."""
    values = {"run": None, **said}
    if "num_nodes" in values:
        values["nodes"] = values.pop("num_nodes")
    if "volumes" in values:
        values["mounts"], values["scratch"] = values.pop("volumes")
    if values.get("restart"):
        values["retries"] = UNLIMITED
    return Spec(**values)


# keys that are valid alone and wrong together, in every way of writing

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


# the same of a task alone


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
