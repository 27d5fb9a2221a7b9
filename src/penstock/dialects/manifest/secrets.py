"""Read references to Secrets: `secretKeyRef`, `envFrom` and `imagePullSecrets`."""

from __future__ import annotations

import re

from penstock.dialects.reader import FieldRules, ReadContext, fields, lacks, matching, read_fields, sequence
from penstock.dialects.yaml import Node
from penstock.domain.environment import ENTRIES_LIMIT
from penstock.domain.workloads import FromSecret

NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?\Z")
KEY = re.compile(r"[-._A-Za-z0-9]{1,253}\Z")
PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
LIMIT = 32
FALSE = frozenset({"false", "False", "FALSE"})
MUST_BE_THERE = ("a Secret that is named must be there", "remove it, or write false")


def variable_of(context: ReadContext, node: Node, path: str, name: str) -> FromSecret | None:
    """Read a variable's `valueFrom`, which may name a Secret's key and nothing else."""
    said = read_fields(context, node, path, SOURCE)
    found: dict[str, str] | None = said.get("secretKeyRef")
    if found is None and lacks(node, "secretKeyRef") and all(lacks(node, other) for other in SOURCE.refused):
        context.problem("names no source", node, path, "secretKeyRef, or write its value")
    return FromSecret(secret=found["name"], key=found["key"], name=name) if found and len(found) > 1 else None


def all_variables(context: ReadContext, node: Node, path: str) -> tuple[FromSecret, ...]:
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
            found.append(FromSecret(secret=said["secretRef"].get("name", ""), prefix=said.get("prefix", "")))
        elif len(context.problems) == before:
            context.problem("names no source", item, here, "for example 'secretRef: {name: credentials}'")
    return tuple(found)


def pull_secrets(context: ReadContext, node: Node, path: str) -> tuple[str, ...]:
    context.says(node, path, "pull_secrets")
    items = sequence(context, node, path)
    if context.too_many(items, LIMIT, node, path):
        return ()
    found = [read_fields(context, item, here, NAMED).get("name") for item, here in items]
    return tuple(dict.fromkeys(name for name in found if name))


_name = matching(NAME.match, "is not the name of a Secret")
_key = matching(KEY.match, "is not a key of a Secret")
_prefix = matching(PREFIX.match, "is not the beginning of a variable's name")
WRITTEN_OUT = "a variable's value is written out, or in a Secret"
WHO_AND_WHERE = (
    "in a Job of several completions every program has JOB_COMPLETION_INDEX; "
    "Penstock's own variables say who and where it is"
)
NAMED = FieldRules({"name": _name}, required={"name": "the Secret's name"})
OPTIONAL = NAMED._replace(refused={"optional": MUST_BE_THERE}, plain={"optional": FALSE})
KEY_OF = OPTIONAL._replace(readers={"name": _name, "key": _key}, required={"name": None, "key": None})
SOURCE = FieldRules(
    {"secretKeyRef": fields(KEY_OF)},
    {
        "fieldRef": (WRITTEN_OUT, WHO_AND_WHERE),
        "resourceFieldRef": (WRITTEN_OUT, WHO_AND_WHERE),
        "configMapKeyRef": (WRITTEN_OUT, "write its value"),
        "fileKeyRef": (WRITTEN_OUT, "write its value"),
    },
)
FROM = FieldRules(
    {"prefix": _prefix, "secretRef": fields(OPTIONAL)}, {"configMapRef": (WRITTEN_OUT, "write them under env")}
)
