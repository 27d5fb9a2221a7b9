"""From what a person wrote (an id or a name) to the one thing they may touch. Not yours reads like not there."""

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
LITERAL = re.compile(r"(.+)-([a-z][a-z2-7]{7})\Z")


def volume(tx: Store, caller: Caller, ref: str, verb: Verb = Verb.get) -> Volume:
    """By name or id in the caller's groups, then by the literal object name; admins may use any id."""

    def find(group: str | None) -> list[Volume]:
        return tx.volumes.find(ref, group) or _literal(tx, group, ref)

    found = _reached(caller, ref, verb, Kind.Volume, find)
    return _one(found, ref, "Volume")


def workload(tx: Store, caller: Caller, ref: str, verb: Verb = Verb.get) -> Workload:
    """By id, or by name: the one that is alive, else the only one."""
    found = _reached(caller, ref, verb, Kind.Workload, lambda group: tx.workloads.find(ref, group))
    alive = [each for each in found if not each.ended]
    exact = [each for each in found if each.id == ref]
    return _one(exact or (alive if len(alive) == 1 else found), ref, "Task")


def _reached(
    caller: Caller, ref: str, verb: Verb, kind: Kind, find: Callable[[str | None], list[Thing]]
) -> list[Thing]:
    """In the groups where the caller may do this; one who may see it and not do it is told so."""
    found = [each for group in caller.where(verb, kind) for each in find(group)]
    if not found and caller.chosen is None and caller.everywhere(verb, kind) and ID.match(ref):
        found = [each for each in find(None) if each.id == ref]
    if found or verb is Verb.get:
        return found
    seen = _reached(caller, ref, Verb.get, kind, find)
    if seen:
        raise Forbidden(refusal(verb, kind, f"in group {seen[0].group}"))
    return []


def _literal(tx: Store, group: str | None, ref: str) -> list[Volume]:
    parts = LITERAL.match(ref)
    if not parts:
        return []
    return [each for each in tx.volumes.find(parts[2], group) if each.object_name == ref]


def _what(thing: Volume | Workload) -> str:
    status = thing.status if isinstance(thing, Workload) else thing.phase
    return f"{status}, {iso(thing.created_at)[:19]}"


def _one(found: Sequence[Thing], ref: str, word: str) -> Thing:
    if not found:
        raise NotFound(f"{word} {shorten(ref)} not found")
    if len(found) > 1:
        each = ", ".join(f"{one.id} ({_what(one)})" for one in found[:10])
        raise Ambiguous(f"{shorten(ref)} is the name of {len(found)}: {each}.", hint="Use one of the ids.")
    return found[0]


def part_problem(workload: Workload, part: int | None) -> Problem | None:
    """What is wrong with asking for this node or index."""
    if part is None or 0 <= part < workload.spec.parts:
        return None
    if workload.spec.parts == 1 and not workload.spec.array:
        return Problem("it has one node only and is no array", field="node or index", hint="leave it out")
    word = "index" if workload.spec.array else "node"
    return Problem(f"there is no {word} {part}", field=word, hint=f"0 to {workload.spec.parts - 1}")
