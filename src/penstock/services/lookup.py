"""Resolve an id or a name to the one thing the caller may touch. Another user's thing is not found."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.domain.model import iso
from penstock.domain.names import ID, shorten
from penstock.domain.policy import Kind, Verb, refusal
from penstock.domain.users import Caller
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.errors import Ambiguous, Forbidden, NotFound, Problem
from penstock.store.session import Store

Thing = TypeVar("Thing", Volume, Workload)
WORDS = {Kind.Volume: "Volume", Kind.Workload: "Task"}
"""What each kind is called where it is not found."""
LITERAL = re.compile(r"(.+)-([a-z][a-z2-7]{7})\Z")


def volume(tx: Store, caller: Caller, ref: str, verb: Verb = Verb.get, *, to_mount: bool = False) -> Volume:
    """Find a volume by name or id in the caller's groups, then by the literal object name; admins may use any id, and
    any name but `to_mount`: a job that names no group means none but its own."""

    def find(group: str | None) -> list[Volume]:
        return tx.volumes.find(ref, group) or _literal(tx, group, ref)

    found = _reached(caller, ref, verb, Kind.Volume, find, names=not to_mount)
    return _one(found, ref, Kind.Volume)


def workload(tx: Store, caller: Caller, ref: str, verb: Verb = Verb.get) -> Workload:
    """Find a workload by id, or by name: the one that is alive, else the newest."""
    return workloads(tx, caller, ref, verb)[0]


def workloads(tx: Store, caller: Caller, ref: str, verb: Verb = Verb.get) -> list[Workload]:
    """Find workloads by id, or by name: the one that is alive, else all that ended in the one group that has them,
    newest first."""
    found = _reached(caller, ref, verb, Kind.Workload, lambda group: tx.workloads.find(ref, group))
    alive = [each for each in found if not each.ended]
    meant = [each for each in found if each.id == ref] or alive or found
    if meant and not alive and len({each.group for each in meant}) == 1:
        return meant
    return [_one(meant, ref, Kind.Workload)]


def _reached(
    caller: Caller,
    ref: str,
    verb: Verb,
    kind: Kind,
    find: Callable[[str | None], list[Thing]],
    *,
    names: bool = True,
) -> list[Thing]:
    """Find things in the groups where the caller may do this, their own first; one who may see it and not do it is told
    so."""
    found = [each for group in caller.where(verb, kind) for each in find(group)]
    if not found and caller.chosen is None and caller.everywhere(verb, kind) and (names or ID.match(ref)):
        found = [each for each in find(None) if names or each.id == ref]
        if verb is Verb.delete:
            _refuse_by_name(found, ref, kind)
    if found or verb is Verb.get:
        return found
    seen = _reached(caller, ref, Verb.get, kind, find)
    if seen:
        raise Forbidden(refusal(verb, kind, f"in group {seen[0].group}"))
    return []


def _refuse_by_name(found: Sequence[Thing], ref: str, kind: Kind) -> None:
    """Refuse to delete by the name of a thing in a group that is not the caller's: a name of one's own that is gone by
    now must not become somebody else's data."""
    if found and all(each.id != ref for each in found):
        group = found[0].group
        hint = f"There is one in group {group}: name that with -g {group}."
        raise NotFound(f"{WORDS[kind]} {shorten(ref)} not found", hint=hint)


def _literal(tx: Store, group: str | None, ref: str) -> list[Volume]:
    parts = LITERAL.match(ref)
    if not parts:
        return []
    return [each for each in tx.volumes.find(parts[2], group) if each.object_name == ref]


def _what(thing: Volume | Workload) -> str:
    status = thing.status if isinstance(thing, Workload) else thing.phase
    return f"{status}, {iso(thing.created_at)[:19]}"


def _one(found: Sequence[Thing], ref: str, kind: Kind) -> Thing:
    if not found:
        raise NotFound(f"{WORDS[kind]} {shorten(ref)} not found")
    if len(found) == 1:
        return found[0]
    several = len({one.group for one in found}) > 1
    named = [
        f"{one.group}/{one.name} ({one.id}, {_what(one)})" if several else f"{one.id} ({_what(one)})" for one in found
    ]
    said = f"{shorten(ref)} is the name of {len(found)}: {', '.join(named[:10])}."
    raise Ambiguous(said, hint="Name the group with -g, or use one of the ids." if several else "Use one of the ids.")


def part_problem(workload: Workload, part: int | None) -> Problem | None:
    """Return what is wrong with asking for this node or index."""
    if part is None or 0 <= part < workload.spec.parts:
        return None
    if workload.spec.parts == 1 and not workload.spec.array:
        return Problem("it has one node only and is no array", field="node or index", hint="leave it out")
    word = "index" if workload.spec.array else "node"
    return Problem(f"there is no {word} {part}", field=word, hint=f"0 to {workload.spec.parts - 1}")
