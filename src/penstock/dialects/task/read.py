"""Read a task's text into a Spec and report all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.dialects.reader import ReadContext, flag
from penstock.dialects.task.checks import Place, check_run, check_together, nearest, places_in
from penstock.dialects.task.keys import IGNORED, RESOURCES, Reader, read_keys
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
from penstock.domain.names import name_problem
from penstock.domain.workloads import UNLIMITED, Spec
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
