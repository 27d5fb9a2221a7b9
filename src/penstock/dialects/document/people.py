"""Read a Group with its limits and defaults, and a User with their groups and rights."""

from __future__ import annotations

from penstock.dialects.document.types import DocumentMetadata
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    Refusal,
    each_once,
    fields,
    flag,
    mapping,
    nearest_word,
    one_or_more,
    or_zero,
    placed,
    read_fields,
    sequence,
    whole,
)
from penstock.dialects.task.mounts import group, size
from penstock.dialects.task.resources import cpus
from penstock.dialects.task.runs import HIGHEST, duration
from penstock.dialects.yaml import Node, Scalar
from penstock.domain.kinds import ALIASES
from penstock.domain.names import shorten
from penstock.domain.policy import EVERYTHING, WORDS
from penstock.domain.users import LARGEST_UID, Group, Limits, Membership, User

LARGEST = 1_000_000


def group_spec(context: ReadContext, about: DocumentMetadata, node: Node, path: str) -> Group | None:
    said = read_fields(context, node, path, GROUP)
    defaults = said.pop("defaults", {})
    return None if context.problems or about.name is None else Group(name=about.name, **said, **defaults)


def _limits(context: ReadContext, node: Node, path: str) -> Limits:
    said = read_fields(context, node, path, LIMITS)
    return Limits(
        gpus=said.get("gpus"),
        cpus_milli=said.get("cpus"),
        workloads=said.get("workloads"),
        volume_bytes=said.get("volume_size"),
    )


_count = whole(0, LARGEST)


LIMITS = FieldRules({"gpus": _count, "cpus": or_zero(cpus), "workloads": _count, "volume_size": or_zero(size)})
DEFAULTS = FieldRules({"max_duration": duration, "idle_timeout": duration})
GROUP = FieldRules(
    {
        "limits": placed(_limits, "limits"),
        "limits_each": placed(_limits, "limits_each"),
        "max_priority": whole(0, HIGHEST),
        "defaults": fields(DEFAULTS),
        "stop_idle": flag,
    },
    {
        "max_duration": ("it is what workloads have that say none", "write it under 'defaults'"),
        "idle_timeout": ("it is what workloads have that say none", "write it under 'defaults'"),
    },
)


GROUPS_LIMIT = 1000
KINDS = (*ALIASES, "Token", "Audit")
"""The kinds a policy may name: PWM's, tokens and the audit."""
VERBS = tuple(dict.fromkeys([*WORDS, "token"]))
"""The verbs of policies. `token` is how PWM opens a shell: here only `shell` gives that."""

Policy = dict[str, tuple[str, ...]] | str


def user_spec(context: ReadContext, about: DocumentMetadata, node: Node, path: str) -> User | None:
    said = read_fields(context, node, path, USER)
    return None if context.problems or about.name is None else User(name=about.name, **said)


def _groups(context: ReadContext, node: Node, path: str) -> tuple[Membership, ...]:
    items = sequence(context, node, path)
    if context.too_many(items, GROUPS_LIMIT, node, path):
        return ()
    found: dict[str, Membership] = {}
    for number, (item, here) in enumerate(items):
        context.says(item, here, "groups", str(number))
        said = read_fields(context, item, here, MEMBERSHIP)
        name = said.get("name")
        if name in found:
            context.problem(f"the group '{shorten(str(name))}' appears twice", item, f"{here}.name", "say it once")
        elif name and "policy" in said:
            found[name] = Membership(name=name, policy=said["policy"])
    return tuple(found.values())


def _policy(context: ReadContext, node: Node, path: str) -> Policy:
    """Return the verbs for each kind, or everything."""
    if isinstance(node, Scalar):
        if node.text != EVERYTHING:
            message = f"must be {EVERYTHING}, or lines of 'kind: [verbs]', not '{shorten(node.text)}'"
            context.problem(message, node, path, "for example 'Workload: [get, apply]'")
        return EVERYTHING
    found: dict[str, tuple[str, ...]] = {}
    for key, value in mapping(context, node, path):
        here = f"{path}.{shorten(key.text)}"
        if key.text not in KINDS:
            message = f"'{shorten(key.text)}' is not a kind"
            context.problem(message, key, here, _nearest(context, key.text, KINDS, "kinds"))
        found[key.text] = _verbs(context, value, here)
    return found


def _verbs(context: ReadContext, node: Node, path: str) -> tuple[str, ...]:
    def verb(context: ReadContext, node: Node, path: str) -> str | None:
        found = context.text(node, path)
        if found is None or found in VERBS:
            return found
        context.problem(f"'{shorten(found)}' is not a verb", node, path, _nearest(context, found, VERBS, "verbs"))
        return None

    return each_once(context, one_or_more(node, path), verb)


def _nearest(context: ReadContext, word: str, known: tuple[str, ...], what: str) -> str:
    near, listed = nearest_word(context, word, known, 0.7), f"the {what} are {', '.join(known)}"
    return f"did you mean '{near}'? {listed}" if near else listed


TOKENS: Refusal = ("tokens are made by the server", "penstock token create NAME")
MEMBERSHIP = FieldRules(
    {"name": group, "policy": _policy},
    required={"name": "for example 'name: vision'", "policy": f"for example 'policy: {EVERYTHING}'"},
)
USER = FieldRules(
    {"groups": placed(_groups, "groups"), "active": flag, "uid": placed(whole(0, LARGEST_UID), "uid")},
    {"token": TOKENS, "tokens": TOKENS, "password": TOKENS},
)
