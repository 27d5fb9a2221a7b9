"""Read what a task runs: `setup` and `run`, `envs` and `secrets`, `ports` and `terminal`.

`setup` and `run` are scripts for bash; `run` may be a program and its arguments instead. Variables given on the command
line go before those in the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.dialects.reader import ReadContext, kind_of, one_or_more, sequence
from penstock.dialects.yaml import Items, Node, Scalar, is_null
from penstock.domain.environment import ENTRIES_LIMIT, is_ours, name_problem, total_problem, value_problem
from penstock.domain.names import shorten
from penstock.domain.secrets import KEPT_OR_NEW, MASK, NOT_A_VALUE
from penstock.domain.workloads import Port
from penstock.errors import Problem


def envs(context: ReadContext, node: Node, path: str) -> dict[str, Scalar]:
    """Return variables by name, including null values: the command line may supply those."""
    pairs = context.pairs(node, path, "for example 'EPOCHS: 10'")
    if context.too_many(pairs, ENTRIES_LIMIT, node, path):
        return {}
    right = {}
    for key, value in pairs:
        name, field = key.text, f"{path}.{shorten(key.text)}"
        if context.found(name_problem(name, field=field, where=context.where(key))):
            continue
        if type(value) is not Scalar:
            context.problem(f"must be a text, not {kind_of(value)}", value, field)
        elif not context.found(value_problem(name, value.text, field=field, where=context.where(value))):
            right[name] = value
    return right


def merged(
    context: ReadContext, said: dict[str, Scalar], secrets: dict[str, Scalar], overrides: Mapping[str, str]
) -> dict[str, str]:
    """What the job gets. A value that was left open must have been given on the command line; only that of a secret
    may be kept elsewhere."""
    for name in said.keys() & secrets.keys():
        context.problem("is in 'envs' too; say it once", secrets[name], f"secrets.{shorten(name)}")
    for name, node in said.items():
        if is_null(node) and name not in overrides:
            hint = f'write {shorten(name)}: "" or submit it with --env {shorten(name)}=…'
            context.problem("has no value", node, f"envs.{shorten(name)}", hint)
    for name, node in secrets.items():
        if node.text == MASK and name not in overrides:
            context.problem(NOT_A_VALUE, node, f"secrets.{shorten(name)}", KEPT_OR_NEW)
    values = {name: node.text for name, node in (said | secrets).items() if not is_null(node)}
    for name, value in overrides.items():
        field = f"--env {shorten(name)}"
        mask = Problem(NOT_A_VALUE, field=field) if name in secrets and value == MASK else None
        if not context.found(name_problem(name, field=field) or value_problem(name, value, field=field) or mask):
            values[name] = value
    context.found(total_problem(values, field="envs"))
    for name in filter(is_ours, values):
        context.notices.append(f"envs.{name}: is one of Penstock's own names; what Penstock sets replaces this value")
    return values


PORTS_LIMIT = 100
LARGEST = 65_535
PORT = re.compile(r"([1-9][0-9]{0,4})(?:/([A-Za-z]{1,8}))?\Z", re.ASCII)
PROTOCOLS = ("tcp", "udp")
PORT_EXAMPLE = "for example 8888, or 53/udp"


def ports(context: ReadContext, node: Node, path: str) -> tuple[Port, ...]:
    items = one_or_more(node, path)
    if context.too_many(items, PORTS_LIMIT, node, path):
        return ()
    read = [(item, here, port(context, item, here)) for item, here in items]
    return once(context, [(item, here, found) for item, here, found in read if found])


def once(context: ReadContext, ports: list[tuple[Node, str, Port]]) -> tuple[Port, ...]:
    found: dict[Port, None] = {}
    for node, path, each in ports:
        if each in found:
            context.problem(f"the port {show_port(each)} appears twice", node, path)
        found[each] = None
    return tuple(found)


def port(context: ReadContext, node: Node, path: str) -> Port | None:
    text = context.text(node, path, PORT_EXAMPLE)
    if text is None:
        return None
    found = PORT.match(text)
    protocol = ((found and found[2]) or "tcp").lower()
    if not found or int(found[1]) > LARGEST or protocol not in PROTOCOLS:
        context.problem(f"'{shorten(text)}' is not a port: 1 to {LARGEST:,}, tcp or udp", node, path, PORT_EXAMPLE)
        return None
    return Port(port=int(found[1]), protocol=protocol)


def show_port(port: Port) -> int | str:
    return port.port if port.protocol == "tcp" else f"{port.port}/{port.protocol}"


SCRIPT_LIMIT = 256 * 1024
ARGUMENTS_LIMIT = 1000
ARGUMENT_LIMIT = 128 * 1024
"""Including the byte that ends it: Linux starts no program with a longer argument."""
TOO_LONG = "put the code in workdir or a volume"
EXAMPLE = "for example 'run: python train.py'"


def setup(context: ReadContext, node: Node, path: str) -> str | None:
    text = _script(context, node, path)
    return text if text and text.strip() else None


def run(context: ReadContext, node: Node, path: str) -> str | tuple[str, ...] | None:
    if type(node) is Items:
        return arguments(context, node, path, EXAMPLE)
    text = _script(context, node, path)
    if text is not None and not text.strip():
        context.problem("is empty", node, path, EXAMPLE)
    return text


def _script(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path, f"write '{path}: |' and the commands below it, indented")
    if text is None:
        return None
    if "\0" in text:
        context.problem("has a NUL character in it", node, path)
    elif len(text.encode()) > SCRIPT_LIMIT:
        context.problem(f"is longer than {SCRIPT_LIMIT // 1024} KiB", node, path, TOO_LONG)
    return text


def arguments(context: ReadContext, node: Items, path: str, example: str) -> tuple[str, ...] | None:
    """Read a program and its arguments, each a text as written."""
    before = len(context.problems)
    if not 1 <= len(node.items) <= ARGUMENTS_LIMIT:
        context.problem(f"has {len(node.items):,} items; 1 to {ARGUMENTS_LIMIT:,} can be", node, path, example)
        return None
    found = [argument(context, item, here) for item, here in sequence(context, node, path)]
    if len(context.problems) > before:
        return None
    if not found[0].strip():
        context.problem("names no program", node.items[0], f"{path}[0]", example)
    elif sum(len(text.encode()) + 1 for text in found) > SCRIPT_LIMIT:
        context.problem(f"is longer than {SCRIPT_LIMIT // 1024} KiB in all", node, path, TOO_LONG)
    return tuple(found)


def argument(context: ReadContext, node: Node, path: str) -> str:
    if is_null(node):
        context.problem("has no value", node, path, "write '' for an empty argument")
        return ""
    text = context.text(node, path) or ""
    if "\0" in text:
        context.problem("has a NUL character in it", node, path)
    elif len(text.encode()) >= ARGUMENT_LIMIT:
        context.problem(f"is longer than {ARGUMENT_LIMIT // 1024} KiB", node, path, TOO_LONG)
    return text
