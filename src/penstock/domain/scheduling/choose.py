"""Choose nodes for a job: packed, so that whole nodes stay free, or spread if it asks for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from penstock.domain.scheduling.capacity import Free, NodeCapacity
from penstock.domain.scheduling.demand import Allocation, QueuedJob
from penstock.domain.scheduling.fit import count, fill
from penstock.domain.scheduling.index import Choice, FitIndex
from penstock.domain.scheduling.reserve import Kept, beside, over


class Chooser:
    def __init__(self, rooms: Mapping[str, NodeCapacity], kept: Kept, now: datetime) -> None:
        self._rooms = rooms
        self._kept = kept
        self.now = now
        self._beside: dict[str, dict[int, Free]] = {}
        """What may be used, by node, and by how many of those it is kept for could be delayed."""

    def changed(self, nodes: Iterable[str]) -> None:
        """Forget what was worked out for these nodes: something started there, or more is kept."""
        for name in nodes:
            self._beside.pop(name, None)

    def find(self, job: QueuedJob, shape: FitIndex, most: int, least: int) -> tuple[Allocation, ...] | None:
        """Find all places of a job, of one product if that can be; or as many as there are, if they are enough."""
        shape.look()
        together = job.ask.together or (1 < most <= shape.largest and not job.ask.array)
        for choice in shape.choices:
            if choice.total >= most and (found := self._collect(job, choice, most, most, together)):
                return found
        if least < most and shape.widest.total >= least:
            return self._collect(job, shape.widest, most, least, together)
        return None

    def _collect(
        self, job: QueuedJob, choice: Choice, most: int, least: int, together: bool
    ) -> tuple[Allocation, ...] | None:
        if job.ask.spread and not job.ask.together:
            picked = self._spread(job, choice, most)
        else:
            picked = (self._together(job, choice, most) if together else None) or {}
            if not picked and not job.ask.together:
                picked = self._pack(job, choice, most)
        if sum(picked.values()) < least:
            return None
        return tuple(
            place
            for name, number in picked.items()
            for place in fill(job.ask, choice.products, number, self._rooms[name], self._free(job, name))
        )

    def _together(self, job: QueuedJob, choice: Choice, most: int) -> dict[str, int] | None:
        """Put ranks that belong together on one node, if one has room for all."""
        for name in choice.nodes():
            if choice.counts[name] >= most and self._fits(job, choice, name) >= most:
                return {name: most}
        return None

    def _pack(self, job: QueuedJob, choice: Choice, most: int) -> dict[str, int]:
        """Fill the fullest nodes first."""
        picked: dict[str, int] = {}
        for name in choice.nodes():
            fits = min(self._fits(job, choice, name), most)
            if fits:
                picked[name] = fits
                most -= fits
            if not most:
                break
        return picked

    def _spread(self, job: QueuedJob, choice: Choice, most: int) -> dict[str, int]:
        """Put one on each node, the emptiest first, then a second on each, and so on."""
        room: dict[str, int] = {}
        for name in choice.nodes(emptiest_first=True):
            if fits := self._fits(job, choice, name):
                room[name] = fits
            if len(room) == most:
                break
        picked = dict.fromkeys(room, 0)
        while most and any(picked[name] < room[name] for name in room):
            for name in room:
                if most and picked[name] < room[name]:
                    picked[name] += 1
                    most -= 1
        return picked

    def _fits(self, job: QueuedJob, choice: Choice, name: str) -> int:
        if name not in self._kept:
            return choice.counts[name]
        return count(job.ask, choice.products, self._free(job, name), self._rooms[name].node)

    def _free(self, job: QueuedJob, name: str) -> Free:
        """Return what it may use of a node: all that is free, if none of those ahead has a reservation."""
        kept, room = self._kept.get(name), self._rooms[name]
        if kept is None:
            return room.free
        end = over(job, self.now)
        known = self._beside.setdefault(name, {})
        number = sum(each.begins_before(end) for each in kept)
        if number not in known:
            known[number] = beside(kept, room, end)
        return known[number]
