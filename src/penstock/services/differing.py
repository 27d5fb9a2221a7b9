"""A workload of the same name that is alive: is it the same, and if not, what differs, in the words of the text."""

from __future__ import annotations

from typing import Any

from penstock.dialects.task import Task
from penstock.dialects.task.write import as_task
from penstock.domain.secrets import masked
from penstock.domain.workloads import Spec, Workload
from penstock.errors import Problem
from penstock.store.session import Store

DIFFERENCES_SHOWN = 5
NAMED_BY_USERS = ("envs", "labels", "volumes")
"""Of what is below these, a text's place is known only as a whole."""


def alive(tx: Store, group: str, name: str) -> list[Workload]:
    found = tx.workloads.find(name, group)
    return [each for each in found if each.name == name and not each.ended]


def is_same(known: Workload, task: Task) -> bool:
    return _named(known.spec, known.name) == task.spec


def _named(spec: Spec, name: str) -> Spec:
    """One that was submitted without a name has one by now, and is found by it."""
    return spec if spec.name == name else spec.model_copy(update={"name": name})


def different(known: Workload, task: Task) -> Problem:
    differences = _differences(_named(known.spec, known.name), task)
    said = f"'{known.name}' ({known.id}) is {known.status} and different: {differences}"
    hint = f"penstock jobs stop {known.id}, then apply it again"
    return Problem(said, where=task.where("name"), field=task.field("name"), hint=hint)


def _differences(known: Spec, task: Task) -> str:
    """`resources.image_id: a → b; run`, in the words of the text: long ones only by name."""
    old, new = _flat(as_task(known)), _flat(as_task(task.spec))
    names = [keys for keys in sorted(old.keys() | new.keys()) if old.get(keys) != new.get(keys)]
    said = [_difference(task, keys, old.get(keys), new.get(keys)) for keys in names[:DIFFERENCES_SHOWN]]
    more = f" and {len(names) - DIFFERENCES_SHOWN} more" if len(names) > DIFFERENCES_SHOWN else ""
    return "; ".join(dict.fromkeys(said)) + more


def _difference(task: Task, keys: tuple[str, ...], *values: Any) -> str:
    name, texts = task.field(*keys), [masked(keys[-1], _said(value)) for value in values]
    if keys[0] in NAMED_BY_USERS and not name.endswith(f".{keys[-1]}"):
        name = f"{name} at {keys[-1]}" if keys[0] == "volumes" else f"{name}.{keys[-1]}"
    long = any(len(text) > 40 or "\n" in text for text in texts)
    return name if long or texts[0] == texts[1] else f"{name}: {texts[0]} → {texts[1]}"


def _said(value: Any) -> str:
    if value is None:
        return "nothing"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _flat(value: Any, keys: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict) and value:
        inner = (_flat(below, (*keys, str(key))) for key, below in value.items())
        return {path: leaf for each in inner for path, leaf in each.items()}
    return {keys: value}
