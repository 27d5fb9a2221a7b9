"""Check the limits on the volumes of groups and their members.

That is done inside the write that makes the volume, so several at once cannot pass together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.domain.policy import Kind
from penstock.domain.quantities import show_bytes
from penstock.domain.users import Group, Limits
from penstock.domain.volumes import Volume
from penstock.errors import Problem
from penstock.store.session import Store

NO_GROUP = ""
"""Groups belong to none."""


class VolumeQuota:
    def __init__(self) -> None:
        self._growing: dict[str, Volume] = {}
        """The volumes that the engine is making larger, by id, with the size they are to have."""

    def problems(
        self, tx: Store, wanted: Volume, others: Sequence[Volume] = (), group: Group | None = None
    ) -> list[Problem]:
        """Return why the volume cannot be, or be as large; `others` are to be made before it, `group` as it is about to
        be."""
        group = group or _group(tx, wanted.group)
        if group is None or not wanted.size_bytes or all(limits.volume_bytes is None for _, limits in _limits(group)):
            return []
        held = {volume.id: volume for volume in tx.volumes.of_group(wanted.group)}
        before = held.pop(wanted.id, None)
        there = held | {id_: volume for id_, volume in self._growing.copy().items() if id_ in held}
        there |= {volume.id: volume for volume in others if volume.group == wanted.group}
        return list(_beyond(wanted, before, there, group))

    def grow(self, tx: Store, larger: Volume) -> list[Problem]:
        """Count a volume with its new size from now on, unless that is too much."""
        problems = self.problems(tx, larger)
        if not problems:
            self._growing[larger.id] = larger
        return problems

    def grown(self, larger: Volume) -> None:
        """Stop counting the new size apart: the volume has it, or will not have it. Somebody else's wish for it
        stays."""
        if self._growing.get(larger.id) is larger:
            del self._growing[larger.id]


def _group(tx: Store, name: str) -> Group | None:
    text = tx.registered.get(Kind.Group, NO_GROUP, name)
    return None if text is None else Group.model_validate_json(text)


def _limits(group: Group) -> tuple[tuple[bool, Limits], tuple[bool, Limits]]:
    """Return the limits of all members together and of each."""
    return (False, group.limits), (True, group.limits_each)


def _beyond(wanted: Volume, before: Volume | None, there: Mapping[str, Volume], group: Group) -> Iterator[Problem]:
    for each, limits in _limits(group):
        most = limits.volume_bytes
        mine = [volume for volume in there.values() if not each or volume.user == wanted.user]
        taken = _bytes(mine) + (before.size_bytes if before else 0)
        more = wanted.size_bytes - (before.size_bytes if before else 0)
        if most is not None and taken + more > most:
            who = f"{wanted.user} in group {group.name}" if each else f"group {group.name}"
            asks = f"{show_bytes(more)} more" if before else show_bytes(more)
            said = f"{who} may have {show_bytes(most)} in volumes: {show_bytes(taken)} are taken, this asks for {asks}"
            yield Problem(said, field="size", hint="delete a volume, or ask an admin for more")


def _bytes(volumes: Iterable[Volume]) -> int:
    return sum(volume.size_bytes for volume in volumes)
