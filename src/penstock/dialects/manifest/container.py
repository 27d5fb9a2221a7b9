"""Read the one container of a workload: image, command, variables, resources and mounts.

In commands and variables a known `$(NAME)` is replaced by its value, an unknown one stays as it is, and `$$` is one
`$`. Kubernetes does that when it starts the container; here it happens when the manifest is read, so that a Spec holds
what the program will get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.dialects.manifest.secrets import all_variables, variable_of
from penstock.dialects.manifest.unsupported import CONTAINER_PLAIN, CONTAINER_REFUSED
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    as_it_is,
    below,
    matching,
    parsed,
    placed,
    read_fields,
    sequence,
    text,
    whole,
)
from penstock.dialects.task.program import ARGUMENT_LIMIT, ARGUMENTS_LIMIT, SCRIPT_LIMIT, TOO_LONG, argument
from penstock.dialects.task.resources import GPUS_LIMIT, IMAGE, SMALLEST_MEMORY
from penstock.dialects.yaml import Node, Pairs
from penstock.domain.environment import (
    ENTRIES_LIMIT,
    ENTRY_LIMIT,
    TOTAL_LIMIT,
    is_ours,
    name_problem,
    total_problem,
    value_problem,
)
from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_bytes, parse_cpus
from penstock.domain.workloads import FromSecret, Requests, Resources

GPU = "nvidia.com/gpu"


def resources(context: ReadContext, node: Node, path: str) -> Resources:
    said = read_fields(context, node, path, RESOURCES)
    limits = _amounts(context, said.get("limits"))
    wanted = _amounts(context, said.get("requests"))
    for name, (_, value, here) in {**wanted, **limits}.items():
        context.says(value, here, "resources", TASK_KEYS[name])
    requests = {key: _request(context, name, limits, wanted) for name, key in SPEC_KEYS.items()}
    kept: dict[str, Any] = {key: limits[name][0] for name, key in SPEC_KEYS.items() if name in limits}
    return Resources(**kept, requests=Requests(**requests), gpus=_gpus(context, limits, wanted))


Amount = tuple[int, Node, str]
"""An amount with its place in the text."""


def _amounts(context: ReadContext, said: tuple[Node, str] | None) -> dict[str, Amount]:
    if said is None:
        return {}
    node, path = said
    amounts = read_fields(context, node, path, AMOUNTS)
    return {
        key.text: (amounts[key.text], value, below(path, key.text))
        for key, value in (node.items if isinstance(node, Pairs) else ())
        if key.text in amounts
    }


def _request(context: ReadContext, name: str, limits: dict[str, Amount], wanted: dict[str, Amount]) -> int | None:
    """Return the request if it is less than the limit."""
    if name not in wanted:
        return None
    amount, node, path = wanted[name]
    limit = limits[name][0] if name in limits else None
    if limit is not None and amount > limit:
        context.problem("asks for more than the limit", node, path, "at most what limits says")
    return amount if amount != limit else None


def _gpus(context: ReadContext, limits: dict[str, Amount], wanted: dict[str, Amount]) -> int:
    limit = limits[GPU][0] if GPU in limits else 0
    if GPU in wanted and wanted[GPU][0] != limit:
        _, node, path = wanted[GPU]
        context.problem("GPUs are given whole: a request must equal its limit", node, path, "write it under limits")
    return limit


def _at_least(text: str) -> int:
    amount = parse_bytes(text)
    if amount < SMALLEST_MEMORY:
        raise NotAQuantity("is less than any program needs", "for example 512Mi")
    return amount


def _exactly(text: str) -> int:
    if text.endswith("+"):  # only SkyPilot says "at least"
        raise NotAQuantity(f"'{shorten(text)}' is not a number of CPUs", "for example 4, 0.5 or 500m")
    return parse_cpus(text)


size = parsed(parse_bytes)


AMOUNTS = FieldRules(
    readers={"cpu": parsed(_exactly), "memory": parsed(_at_least), "ephemeral-storage": size, GPU: whole(0, GPUS_LIMIT)}
)
RESOURCES = FieldRules(
    readers={"limits": as_it_is, "requests": as_it_is},
    refused={"claims": ("devices are asked for as nvidia.com/gpu", "remove it")},
)
SPEC_KEYS = {"cpu": "cpus_milli", "memory": "memory_bytes", "ephemeral-storage": "disk_bytes"}
TASK_KEYS = {"cpu": "cpus", "memory": "memory", "ephemeral-storage": "disk_size", GPU: "accelerators"}


INDEX = "JOB_COMPLETION_INDEX"
BASH = ("/bin/bash", "-c")
"""What runs a task's script, with the script as one more argument."""
OWN_COMMAND = "for example 'command: [python, train.py]': the image's own program is not started"


def container(context: ReadContext, node: Node, path: str) -> dict[str, Any]:
    """Return the fields of a Spec that a container sets, and `volumeMounts` as written."""
    said = read_fields(context, node, path, CONTAINER)
    envs, unknown, single = said.get("env", ({}, frozenset(), ()))
    run = _run(context, said, envs, {*unknown, INDEX} - envs.keys(), node, path)
    asked = said.get("resources", Resources())
    return {
        "run": run,
        "envs": envs,
        "from_secrets": (*said.get("envFrom", ()), *single),
        "workdir": said.get("workingDir") or None,
        "resources": asked.model_copy(update={"image": said.get("image")}),
        "volumeMounts": said.get("volumeMounts"),
    }


# command and args


def _run(
    context: ReadContext,
    said: dict[str, Any],
    envs: Mapping[str, str],
    unknown: set[str],
    node: Node,
    path: str,
) -> str | tuple[str, ...] | None:
    if "command" not in said:
        context.require(node, path, "command", OWN_COMMAND)
        return None
    before = len(context.problems)
    items = [*sequence(context, *said["command"]), *(sequence(context, *said["args"]) if "args" in said else [])]
    context.says(said["command"][0], f"{path}.command", "run")
    words = [_word(context, *item, envs, unknown) for item in items[:ARGUMENTS_LIMIT]]
    if len(items) > ARGUMENTS_LIMIT:
        context.problem(f"has {len(items):,} texts with args; {ARGUMENTS_LIMIT:,} at most", node, f"{path}.command")
    elif sum(expanded_length(word, envs) + 1 for word in words) > SCRIPT_LIMIT:
        context.problem(f"is longer than {SCRIPT_LIMIT // 1024} KiB with args", node, f"{path}.command", TOO_LONG)
    if len(context.problems) > before:
        return None
    found = tuple(expanded(word, envs) for word in words)
    if not found or not found[0].strip():
        context.problem("names no program", node, f"{path}.command", OWN_COMMAND)
    return found[2] if len(found) == 3 and found[:2] == BASH and found[2].strip() else found


def _word(context: ReadContext, node: Node, path: str, envs: Mapping[str, str], unknown: set[str]) -> str:
    word = argument(context, node, path)
    for name in sorted(referenced(word) & unknown):
        message = f"asks for $({name}), which is not known before it runs"
        context.problem(message, node, path, f"let a shell ask: [sh, -c, 'program ${name}']")
    if len(word) < ARGUMENT_LIMIT <= expanded_length(word, envs):
        context.problem(f"is longer than {ARGUMENT_LIMIT // 1024} KiB with its variables", node, path, TOO_LONG)
    return word


# the other fields


_image = placed(matching(IMAGE.match, "is not an image", "for example python:3.13-slim"), "resources", "image_id")


_directory = matching(
    lambda where: not where or (where.startswith("/") and where.isprintable() and len(where.encode()) <= 4096),
    "is not an absolute path",
    "for example /data",
)


def _env(context: ReadContext, node: Node, path: str) -> tuple[dict[str, str], frozenset[str], tuple[FromSecret, ...]]:
    """The values, each with those before it put in, the names that have none before the program runs, and those of
    them whose values are in Secrets."""
    values: dict[str, str] = {}
    ours: set[str] = set()
    hidden: dict[str, FromSecret] = {}
    total = 0
    items = sequence(context, node, path)
    if context.too_many(items, ENTRIES_LIMIT, node, path):
        return {}, frozenset(), ()
    for item, here in items:
        said = read_fields(context, item, here, VARIABLE)
        name = said.get("name")
        if name is None:
            continue
        if is_ours(name):
            ours.add(name)
        elif context.found(name_problem(name, field=f"{here}.name", where=context.where(item))):
            continue
        elif name in values or name in hidden:
            context.problem(f"the variable '{shorten(name)}' appears twice", item, f"{here}.name", "say it once")
        elif "valueFrom" in said:
            context.says(item, here, "from_secrets")
            source, where = said["valueFrom"]
            if found := variable_of(context, source, where, name):
                hidden[name] = found
        else:
            _add(context, values, hidden.keys(), name, said.get("value", ""), item, here)
            total += len(values.get(name, ""))
        if total > TOTAL_LIMIT:
            break
    context.found(total_problem(values, field=path, where=context.where(node)))
    if ours:
        context.notices.append(f"{path}: Penstock sets {', '.join(sorted(ours))} itself, in place of what is said here")
    return values, frozenset(ours) | hidden.keys(), tuple(hidden.values())


def _add(
    context: ReadContext,
    values: dict[str, str],
    hidden: Collection[str],
    name: str,
    value: str,
    node: Node,
    path: str,
) -> None:
    if asked := sorted(referenced(value) & set(hidden)):
        message = f"asks for $({asked[0]}), whose value is in a Secret"
        context.problem(message, node, f"{path}.value", "put the two together in the program")
    elif expanded_length(value, values) > ENTRY_LIMIT:
        context.problem(f"is longer than {ENTRY_LIMIT // 1024} KiB", node, f"{path}.value")
    elif not context.found(value_problem(name, value, field=f"{path}.value", where=context.where(node))):
        values[name] = expanded(value, values)


VARIABLE = FieldRules({"name": text, "value": text, "valueFrom": as_it_is}, required={"name": None})
CONTAINER = FieldRules(
    {
        "name": text,
        "image": _image,
        "command": as_it_is,
        "args": as_it_is,
        "workingDir": placed(_directory, "workdir"),
        "env": placed(_env, "envs"),
        "envFrom": all_variables,
        "resources": resources,
        "volumeMounts": as_it_is,
    },
    CONTAINER_REFUSED,
    CONTAINER_PLAIN,
    {"image": "for example 'image: python:3.13-slim'"},
)


REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


def expanded(text: str, values: Mapping[str, str]) -> str:
    return _replaced(text, lambda found: values.get(found[1], found[0]), "$")


def expanded_length(text: str, values: Mapping[str, str]) -> int:
    """Return an upper bound of the expanded length, before a text is made that may be far longer."""
    named = (name for name in _names(text) if name in values)
    return len(text) + sum(len(values[name]) for name in named)


def referenced(text: str) -> set[str]:
    return set(_names(text))


def escaped(text: str) -> str:
    """Escape a text so that Kubernetes passes on exactly this text.

    A `$(` that holds more than one word names no variable and stays: scripts remain readable.
    """
    return _replaced(text, lambda found: f"${found[0]}" if VARIABLE_NAME.match(found[1]) else found[0], "$$$$")


def _replaced(text: str, named: Callable[[re.Match[str]], str], dollar: str) -> str:
    """Replace the references. Nothing after the last ')' is searched, which keeps the time linear."""
    if "$" not in text:
        return text
    end = text.rfind(")") + 1
    head = REFERENCE.sub(lambda found: dollar if found[1] is None else named(found), text[:end])
    return head + text[end:].replace("$$", dollar)


def _names(text: str) -> list[str]:
    if "$" not in text:
        return []
    return [found[1] for found in REFERENCE.finditer(text, 0, text.rfind(")") + 1) if found[1] is not None]
