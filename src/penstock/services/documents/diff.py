"""Compare a document with what exists under its name, in the words of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.dialects.task.read import Task
from penstock.dialects.task.write import as_task
from penstock.domain.policy import EVERYTHING
from penstock.domain.secrets import MASK, masked
from penstock.domain.users import Caller
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Spec, Workload
from penstock.errors import Problem
from penstock.store.session import Store

DIFFERENCES_SHOWN = 5
NAMED_BY_USERS = ("envs", "secrets", "labels", "volumes")
"""Keys of which a text's places are known only as a whole."""
VOLUME_FIELDS = ("storage", "sub_path", "readonly", "storage_class", "access_modes", "size")
OF_THE_STORAGE = ("storage_class", "access_modes")
"""Fields that are others on another storage, too."""


def alive(tx: Store, group: str, name: str) -> list[Workload]:
    found = tx.workloads.find(name, group)
    return [each for each in found if each.name == name and not each.ended]


def last_of(tx: Store, caller: Caller, name: str) -> Workload | None:
    """Return the caller's own newest workload of this name: a program of somebody else's could print its secrets."""
    found = tx.workloads.find(name, caller.group)
    return next((each for each in found if each.name == name and each.user == caller.user), None)


def is_same(known: Workload, task: Task) -> bool:
    return _comparable(known, task) == task.spec


def with_kept(task: Task, known: Workload | None) -> Task:
    """Return the task with the values that `known` has for the secrets which the text only names."""
    open_secrets = task.spec.open_secrets
    if known is None or not open_secrets:
        return task
    kept = {name: value for name, value in known.spec.secret_values.items() if name in open_secrets}
    return task._replace(spec=task.spec.model_copy(update={"envs": task.spec.envs | kept}))


def open_secrets(task: Task) -> list[Problem]:
    """Return the problems of secrets that nothing gives a value."""
    said = "has no value, and none is kept"
    hint = "write its value, or submit it with --env {}=…"
    return [task.problem(said, "secrets", name, hint=hint.format(name)) for name in task.spec.open_secrets]


def _comparable(known: Workload, task: Task) -> Spec:
    """Return the spec in the form in which two are compared. One that was submitted without a name has one by now, and
    is found by it; in records from before there was a default for `requeue`, 0 also stands for one that says none."""
    spec = known.spec if known.spec.name == known.name else known.spec.model_copy(update={"name": known.name})
    if spec.requeue == 0 and task.spec.requeue is None:
        return spec.model_copy(update={"requeue": None})
    return spec


def different(known: Workload, task: Task, *, seen: bool) -> Problem:
    """Return the problem that names the differences; `seen`: whoever applies it may also see the workload."""
    said = f"'{known.name}' ({known.id}) is {known.status} and different"
    if seen:
        said += f": {_differences(_comparable(known, task), task)}"
    hint = f"penstock jobs stop {known.id}, then apply it again"
    return task.problem(said, "name", hint=hint)


def _differences(known: Spec, task: Task) -> str:
    """`resources.image_id: a → b; run`, in the words of the text: long ones only by name."""
    old, new = _flat(_written(known)), _flat(_written(task.spec))
    for key in ("from_secrets", "pull_secrets"):  # only manifests say them
        old[key,], new[key,] = getattr(known, key), getattr(task.spec, key)
    names = [keys for keys in sorted(old.keys() | new.keys()) if old.get(keys) != new.get(keys)]
    said = [_difference(task, keys, old.get(keys), new.get(keys)) for keys in names[:DIFFERENCES_SHOWN]]
    more = f" and {len(names) - DIFFERENCES_SHOWN} more" if len(names) > DIFFERENCES_SHOWN else ""
    return "; ".join(dict.fromkeys(said)) + more


def _written(spec: Spec) -> dict[str, Any]:
    """Write it as a task, with the values of secrets, which only `_difference` looks at."""
    said = as_task(spec)
    return said | {"secrets": spec.secret_values} if spec.secrets else said


def _difference(task: Task, keys: tuple[str, ...], *values: Any) -> str:
    name, texts = task.field(*keys), [MASK if keys[0] == "secrets" else masked(keys[-1], _said(v)) for v in values]
    if keys[0] in NAMED_BY_USERS and not name.endswith(f".{keys[-1]}"):
        name = f"{name} at {keys[-1]}" if keys[0] == "volumes" else f"{name}.{keys[-1]}"
    long = any(len(text) > 40 or "\n" in text for text in texts)
    return name if long or texts[0] == texts[1] else f"{name}: {texts[0]} → {texts[1]}"


def _said(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):  # a volume that is written out
        return ", ".join(str(said) for said in value.values() if said != EVERYTHING)
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _flat(value: Any, keys: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict) and value and not (keys[:1] == ("volumes",) and "name" in value):
        inner = (_flat(below, (*keys, str(key))) for key, below in value.items())
        return {path: leaf for each in inner for path, leaf in each.items()}
    return {keys: value}


def volume_differences(found: Volume, wanted: Volume, fields: Sequence[str]) -> list[Problem]:
    """Return a problem for each field in which the two differ."""
    different = [each for each in fields if _value(found, each) != _value(wanted, each)]
    if "storage" in different:
        different = [each for each in different if each not in OF_THE_STORAGE]
    hint = f"penstock volumes delete {found.name} destroys it with its data"
    said = [f"is {_of_volume(found, each)} and cannot become {_of_volume(wanted, each)}" for each in different]
    return [Problem(text, field=each, hint=hint) for text, each in zip(said, different, strict=True)]


def _value(volume: Volume, field: str) -> object:
    if field == "access_modes":
        return set(volume.access_modes)
    return volume.size_bytes if field == "size" else getattr(volume, field)


def _of_volume(volume: Volume, field: str) -> str:
    value = getattr(volume, field)
    if field == "readonly":
        return "readonly" if value else "rw"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value or "nothing")
