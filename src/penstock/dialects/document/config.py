"""Read what a Workload runs: `image`, `config` with its variables and labels, and its ports."""

from __future__ import annotations

import re
import shlex
from typing import Any

from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    Refusal,
    as_it_is,
    fields,
    kind_of,
    lacks,
    matching,
    one_of,
    one_or_more,
    placed,
    read_fields,
    sequence,
    text,
    whole,
)
from penstock.dialects.task.program import (
    LARGEST,
    PORTS_LIMIT,
    PROTOCOLS,
    SCRIPT_LIMIT,
    TOO_LONG,
    arguments,
    envs,
    port,
)
from penstock.dialects.task.resources import IMAGE
from penstock.dialects.task.selectors import read_labels
from penstock.dialects.yaml import Items, Node, Pairs, Scalar, is_null
from penstock.domain.environment import is_ours, total_problem
from penstock.domain.names import shorten
from penstock.domain.secrets import KEPT_OR_NEW, MASK, NOT_A_VALUE
from penstock.domain.workloads import Port
from penstock.errors import Problem

Found = list[tuple[Node, str, Port]]
"""Ports with their places: duplicates are found when all are read."""
PUBLISHED: Refusal = ("no port is published on a host", "remove it; penstock port-forward reaches the workload")


def ports(context: ReadContext, node: Node, path: str) -> Found:
    """Read ports such as `8888/tcp`, as keys or as items, each of which may be `{port, protocol}` or PWM's `{name:
    8888/tcp}`; Docker's values for them must be empty."""
    entries: list[tuple[Node, str]] = []
    if isinstance(node, Pairs):
        for key, value in node.items:
            here = f"{path}.{shorten(key.text)}"
            _refuse_value(context, value, here)
            entries.append((key, here))
    else:
        entries = one_or_more(node, path)
    if context.too_many(entries, PORTS_LIMIT, node, path):
        return []
    read = [(item, here, _port(context, item, here)) for item, here in entries]
    return [(item, here, found) for item, here, found in read if found]


def _port(context: ReadContext, node: Node, path: str) -> Port | None:
    if not isinstance(node, Pairs):
        return port(context, node, path)
    if lacks(node, "name"):
        said = read_fields(context, node, path, PORT)
        return Port(port=said["port"], protocol=said.get("protocol", "tcp")) if "port" in said else None
    said = read_fields(context, node, path, NAMED)
    if "value" in said:
        _refuse_value(context, *said["value"])
    return port(context, said["name"], path) if "name" in said else None


def _refuse_value(context: ReadContext, node: Node, path: str) -> None:
    empty = is_null(node) or not (node.text if isinstance(node, Scalar) else node.items)
    if not empty:
        context.problem(f"is not supported: {PUBLISHED[0]}", node, path, PUBLISHED[1])


def name_of_pair(context: ReadContext, node: Node, path: str) -> Scalar | None:
    if isinstance(node, Scalar):
        return node
    context.text(node, path)
    return None


NAMED = FieldRules({"name": name_of_pair, "value": as_it_is})
VARIABLE = NAMED._replace(required={"name": None, "value": "write 'value: \"\"' for an empty one"})


PORT = FieldRules(
    {"port": whole(1, LARGEST), "protocol": one_of({each: each for each in PROTOCOLS})},
    {"hostPort": PUBLISHED},
    required={"port": "for example 'port: 8888'"},
)
NETWORK = FieldRules({"name": as_it_is, "ports": placed(ports, "ports")})
network = fields(NETWORK)


REGISTRY = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._/-]{0,200})?\Z"
)
START_MODE = re.compile(r"-?[itd]{1,3}\Z")
IMAGE_EXAMPLE = "for example python:3.13-slim"
EXAMPLE = "for example 'cmd: python train.py'"

# image


def image(context: ReadContext, node: Node, path: str) -> str | None:
    if isinstance(node, Scalar):
        hint = f"write 'image: {{image: {shorten(node.text)}}}'"
        context.problem(f"must be a mapping, not {kind_of(node)}", node, path, hint)
        return None
    said = read_fields(context, node, path, IMAGE_SHAPE)
    name, registry = said.get("image"), said.get("registry")
    whole = f"{registry}/{name}" if name and registry else name
    if whole is not None and not IMAGE.match(whole):
        where, field = context.places["resources", "image_id"]
        message = f"'{shorten(whole)}' is not an image"
        context.problems.append(Problem(message, where=where, field=field, hint=IMAGE_EXAMPLE))
    return whole


def _registry(context: ReadContext, node: Node, path: str) -> str | None:
    name = _host_and_port(context, node, path)
    return name and name.rstrip("/")


_host_and_port = matching(
    lambda name: REGISTRY.match(name.rstrip("/")),
    "is not a registry: a host, and its port",
    "for example registry.example.com:5000",
)
IMAGE_SHAPE = FieldRules(
    {"image": placed(text, "resources", "image_id"), "registry": _registry},
    required={"image": "for example 'image: ubuntu'"},
)


# config


def config(context: ReadContext, node: Node, path: str) -> dict[str, Any]:
    said = read_fields(context, node, path, CONFIG)
    found = {key: said[name] for name, key in MEANS.items() if name in said}
    if "secrets" in said:
        found["envs"] = _with_secrets(context, said, node, path)
        found["secrets"] = tuple(sorted(said["secrets"]))
    return found | {"ports": [*said.get("exposedPorts", ()), *said.get("ports", ())]}


def _cmd(context: ReadContext, node: Node, path: str) -> tuple[str, ...] | None:
    """Split a text as a shell would; nothing else of a shell happens to it."""
    if isinstance(node, Items):
        return arguments(context, node, path, EXAMPLE)
    line = context.text(node, path, EXAMPLE)
    if line is None:
        return None
    if len(line) > SCRIPT_LIMIT:
        context.problem(f"is longer than {SCRIPT_LIMIT // 1024} KiB", node, path, TOO_LONG)
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        context.problem("a quote is opened and never closed", node, path, "write a list of texts")
        return None
    if not words:
        context.problem("is empty", node, path, "leave it out for the image's own command")
        return None
    return arguments(context, Items([Scalar(word, quoted=True, mark=node.mark) for word in words]), path, EXAMPLE)


def _start_mode(context: ReadContext, node: Node, path: str) -> bool | None:
    """Tell whether the letters, as of `docker run`, ask for a terminal; a workload is detached anyway."""
    letters = _letters(context, node, path)
    return None if letters is None else "i" in letters or "t" in letters


_letters = matching(
    START_MODE.match,
    "is not a start mode: the letters i and t for a terminal, and d",
    "-itd, or -d for no terminal",
)


def _with_secrets(context: ReadContext, said: dict[str, Any], node: Node, path: str) -> dict[str, str]:
    plain, hidden = said.get("env", {}), said["secrets"]
    for name in plain.keys() & hidden.keys():
        context.problem("is in 'env' too; say it once", node, f"{path}.secrets.{shorten(name)}")
    found: dict[str, str] = plain | {name: value for name, value in hidden.items() if value is not None}
    context.found(total_problem(found, field=path, where=context.where(node)))
    return found


def _env(context: ReadContext, node: Node, path: str) -> dict[str, str]:
    said = _variables(context, node, path)
    for name, value in said.items():
        if is_null(value):
            context.problem("has no value", value, f"{path}.{shorten(name)}", f'write {shorten(name)}: ""')
    return {name: value.text for name, value in said.items()}


def _secrets(context: ReadContext, node: Node, path: str) -> dict[str, str | None]:
    """Return values by name; None is a value that is kept elsewhere."""
    said = _variables(context, node, path)
    for name, value in said.items():
        here = f"{path}.{shorten(name)}"
        context.says(value, here, "secrets", name)
        if value.text == MASK:
            context.problem(NOT_A_VALUE, value, here, KEPT_OR_NEW)
    return {name: None if is_null(value) else value.text for name, value in said.items()}


def _variables(context: ReadContext, node: Node, path: str) -> dict[str, Scalar]:
    said = envs(context, Pairs(_pairs(context, node, path), node.mark), path)
    context.found(
        total_problem({name: value.text for name, value in said.items()}, field=path, where=context.where(node))
    )
    ours = ", ".join(filter(is_ours, said))
    if ours:
        context.notices.append(f"{path}: Penstock sets {ours} itself, in place of what is said here")
    return said


def _labels(context: ReadContext, node: Node, path: str) -> dict[str, str]:
    return read_labels(context, _pairs(context, node, path), node, path)


def _pairs(context: ReadContext, node: Node, path: str) -> list[tuple[Scalar, Node]]:
    """Return the pairs of a mapping, or of PWM's lists of `{name, value}` or `NAME=value`."""
    if isinstance(node, Pairs):
        return node.items
    found: dict[str, tuple[Scalar, Node]] = {}
    for item, here in sequence(context, node, path):
        pair = _pair(context, item, here)
        if pair and pair[0].text in found:
            context.problem(f"'{shorten(pair[0].text)}' appears twice", item, here, "say it once")
        if pair:
            found[pair[0].text] = pair
    return list(found.values())


def _pair(context: ReadContext, item: Node, path: str) -> tuple[Scalar, Node] | None:
    if isinstance(item, Scalar):
        name, equals, value = item.text.partition("=")
        if not equals:
            context.problem(f"'{shorten(item.text)}' has no value", item, path, "write NAME=value")
            return None
        return Scalar(name, quoted=True, mark=item.mark), Scalar(value, quoted=True, mark=item.mark)
    said = read_fields(context, item, path, VARIABLE)
    return (said["name"], said["value"][0]) if "name" in said and "value" in said else None


MEANS = {"cmd": "run", "startMode": "terminal", "env": "envs", "labels": "labels"}
KEPT_APART = "a workload is kept apart from the node it runs on"
CONFIG_REFUSED: dict[str, Refusal] = {
    "hostConfig": (KEPT_APART, "volumes, ports and resources have keys of their own under spec"),
    "privileged": (KEPT_APART, "remove it"),
    "volumes": ("volumes have a list of their own", "write spec.volumes"),
    "workingDir": ("a directory is said as in a task", "write spec.workdir"),
    "entrypoint": ("a command is one list", "write it in front of cmd"),
    "user": ("whose program it is, is not the program's to say", "remove it"),
    "tty": ("a terminal is asked for by startMode", "write 'startMode: -itd'"),
    "openStdin": ("a terminal is asked for by startMode", "write 'startMode: -itd'"),
    "image": ("the image is not part of it", "write spec.image"),
}
CONFIG = FieldRules(
    {
        "cmd": placed(_cmd, "run"),
        "startMode": placed(_start_mode, "terminal"),
        "env": placed(_env, "envs"),
        "secrets": placed(_secrets, "secrets"),
        "labels": placed(_labels, "labels"),
        "exposedPorts": placed(ports, "ports"),
        "ports": placed(ports, "ports"),
    },
    CONFIG_REFUSED,
    {"privileged": {"false"}},
)
