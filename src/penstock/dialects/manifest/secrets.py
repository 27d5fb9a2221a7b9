"""Read references to Secrets: `secretKeyRef`, `envFrom` and `imagePullSecrets`."""

from __future__ import annotations

import re

from penstock.dialects.reader import FieldRules, PlacedContext, lacks, matching, read_fields, sequence
from penstock.dialects.yaml import Node
from penstock.domain.environment import ENTRIES_LIMIT
from penstock.domain.workloads import FromSecret

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?\Z")
KEY = re.compile(r"[-._A-Za-z0-9]{1,253}\Z")
PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
LIMIT = 32
FALSE = frozenset({"false", "False", "FALSE"})
MUST_BE_THERE = ("a Secret that is named must be there", "remove it, or write false")


def variable_of(context: PlacedContext, node: Node, path: str, name: str) -> FromSecret | None:
    """Read a variable's `valueFrom`, which may name a Secret's key and nothing else."""
    said = read_fields(context, node, path, SOURCE)
    found: tuple[str, str] | None = said.get("secretKeyRef")
    if found is None and lacks(node, "secretKeyRef") and not _refused(node):
        context.problem("names no source", node, path, "secretKeyRef, or write its value")
    return FromSecret(secret=found[0], key=found[1], name=name) if found else None


def all_variables(context: PlacedContext, node: Node, path: str) -> tuple[FromSecret, ...]:
    """Read a container's `envFrom`."""
    context.says(node, path, "from_secrets")
    items = sequence(context, node, path)
    if context.too_many(items, ENTRIES_LIMIT, node, path):
        return ()
    found = []
    for item, here in items:
        before = len(context.problems)
        said = read_fields(context, item, here, FROM)
        if "secretRef" in said:
            found.append(FromSecret(secret=said["secretRef"], prefix=said.get("prefix", "")))
        elif len(context.problems) == before:
            context.problem("names no source", item, here, "for example 'secretRef: {name: credentials}'")
    return tuple(found)


def pull_secrets(context: PlacedContext, node: Node, path: str) -> tuple[str, ...]:
    context.says(node, path, "pull_secrets")
    items = sequence(context, node, path)
    if context.too_many(items, LIMIT, node, path):
        return ()
    found = [_named(context, item, here, NAMED) for item, here in items]
    return tuple(dict.fromkeys(name for name in found if name))


def _refused(node: Node) -> bool:
    return any(not lacks(node, name) for name in SOURCE.refused)


def _named(context: PlacedContext, node: Node, path: str, shape: FieldRules) -> str | None:
    said = read_fields(context, node, path, shape)
    context.require(node, path, "name", "the Secret's name")
    name: str | None = said.get("name")
    return name


def _secret(context: PlacedContext, node: Node, path: str) -> str | None:
    return _named(context, node, path, OPTIONAL)


def _key_of(context: PlacedContext, node: Node, path: str) -> tuple[str, str] | None:
    said = read_fields(context, node, path, KEY_OF)
    for name in ("name", "key"):
        context.require(node, path, name)
    return (said["name"], said["key"]) if "name" in said and "key" in said else None


def _name(context: PlacedContext, node: Node, path: str) -> str | None:
    return matching(context, node, path, NAME.match, "is not the name of a Secret")


def _key(context: PlacedContext, node: Node, path: str) -> str | None:
    return matching(context, node, path, KEY.match, "is not a key of a Secret")


def _prefix(context: PlacedContext, node: Node, path: str) -> str | None:
    return matching(context, node, path, PREFIX.match, "is not the beginning of a variable's name")


WRITTEN_OUT = "a variable's value is written out, or in a Secret"
WHO_AND_WHERE = (
    "in a Job of several completions every program has JOB_COMPLETION_INDEX; "
    "Penstock's own variables say who and where it is"
)
SOURCE = FieldRules(
    {"secretKeyRef": _key_of},
    {
        "fieldRef": (WRITTEN_OUT, WHO_AND_WHERE),
        "resourceFieldRef": (WRITTEN_OUT, WHO_AND_WHERE),
        "configMapKeyRef": (WRITTEN_OUT, "write its value"),
        "fileKeyRef": (WRITTEN_OUT, "write its value"),
    },
)
NAMED = FieldRules({"name": _name})
OPTIONAL = FieldRules({"name": _name}, {"optional": MUST_BE_THERE}, {"optional": FALSE})
KEY_OF = FieldRules({"name": _name, "key": _key}, {"optional": MUST_BE_THERE}, {"optional": FALSE})
FROM = FieldRules({"prefix": _prefix, "secretRef": _secret}, {"configMapRef": (WRITTEN_OUT, "write them under env")})
