"""Read `envs` and `secrets`, overlaid with the variables of the command line."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dialects.reader import ReadContext, kind_of
from penstock.dialects.yaml import Node, Scalar, is_null
from penstock.domain.environment import ENTRIES_LIMIT, is_ours, name_problem, total_problem, value_problem
from penstock.domain.names import shorten
from penstock.domain.secrets import KEPT_OR_NEW, MASK, NOT_A_VALUE
from penstock.errors import Problem


def envs(context: ReadContext, node: Node, path: str) -> dict[str, Scalar]:
    """By name, null values still among them: the command line may supply those."""
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
