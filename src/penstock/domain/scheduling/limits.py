"""Count against the limits of groups and their members: a job beyond a limit waits and delays nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.domain.quantities import show_cpus
from penstock.domain.scheduling.demand import Ask, PlacedJob, QueuedJob
from penstock.domain.users import Group, Limits


@dataclass(slots=True)
class Amount:
    gpus: int = 0
    cpus_milli: int = 0
    memory_bytes: int = 0
    workloads: int = 0

    def add(self, held: PlacedJob, sign: int = 1) -> None:
        self.gpus += sign * held.gpus
        self.cpus_milli += sign * held.cpus_milli
        self.memory_bytes += sign * held.memory_bytes
        self.workloads += sign

    def expect(self, ask: Ask) -> None:
        """Count a job as if it had started with all its places."""
        self.gpus += ask.places * ask.gpus
        self.cpus_milli += ask.places * (ask.cpus_milli or 0)
        self.memory_bytes += ask.places * (ask.memory_bytes or 0)

    def plus(self, more: Amount) -> Amount:
        return Amount(self.gpus + more.gpus, self.cpus_milli + more.cpus_milli, self.memory_bytes + more.memory_bytes)

    def copy(self) -> Amount:
        return Amount(self.gpus, self.cpus_milli, self.memory_bytes, self.workloads)

    def share_of(self, total: Amount) -> float:
        """Return its share of all there is, by the resource that it holds most of."""
        return max(
            self.gpus / total.gpus if total.gpus else 0.0,
            self.cpus_milli / total.cpus_milli if total.cpus_milli else 0.0,
            self.memory_bytes / total.memory_bytes if total.memory_bytes else 0.0,
        )


_Show = Callable[[int], str]
NOTHING = Amount()
NO_LIMITS = Limits()
UNBOUNDED = 1 << 40


class UserUsage:
    """What users and groups hold, and what their limits leave them."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        self._held: dict[tuple[str, str | None], Amount] = {}

    def add(self, held: PlacedJob, sign: int = 1) -> None:
        if held.job.unlimited:
            return
        for key in ((held.job.group, None), (held.job.group, held.job.user)):
            amount = self._held.setdefault(key, Amount())
            amount.add(held, sign)
            if not amount.workloads:
                del self._held[key]

    def of(self, group: str, user: str | None = None) -> Amount:
        return self._held.get((group, user), NOTHING)

    def _bounds(self, job: QueuedJob) -> Iterable[tuple[str, Limits, Amount]]:
        group = self._groups.get(job.group)
        if group and not job.unlimited:
            yield f"group {group.name}", group.limits, self.of(group.name)
            yield f"{job.user} in group {group.name}", group.limits_each, self.of(group.name, job.user)

    def limits(self, group: str) -> bool:
        """Is there any limit in this group?"""
        found = self._groups.get(group)
        return found is not None and (found.limits != NO_LIMITS or found.limits_each != NO_LIMITS)

    def places_ever(self, job: QueuedJob) -> int:
        """Return how many places its limits leave it when nothing else runs."""
        return min((_places(job.ask, limits, NOTHING) for _, limits, _ in self._bounds(job)), default=UNBOUNDED)

    def places_now(self, job: QueuedJob) -> int:
        return min((_places(job.ask, limits, held) for _, limits, held in self._bounds(job)), default=UNBOUNDED)

    def shares_ever(self, job: QueuedJob) -> int | None:
        """Return how many CPUs its limits leave for shares of nodes when nothing else runs: how many a share is, is
        known only with the node. None: no limit does, or the job says how many it needs."""
        return self._shares(job, (limits.cpus_milli for _, limits, _ in self._bounds(job)))

    def shares_now(self, job: QueuedJob) -> int | None:
        return self._shares(job, (_cpus_left(limits, held) for _, limits, held in self._bounds(job)))

    def _shares(self, job: QueuedJob, lefts: Iterable[int | None]) -> int | None:
        if job.ask.cpus_milli is not None:
            return None
        return min((left for left in lefts if left is not None), default=None)

    def tightest(self, job: QueuedJob, *, ever: bool = False) -> str:
        """Return whose limit leaves it fewest CPUs; `ever`: when nothing else runs."""
        bounds = [(who, _cpus_left(limits, NOTHING if ever else held)) for who, limits, held in self._bounds(job)]
        return min((left, who) for who, left in bounds if left is not None)[1]

    def why(self, job: QueuedJob, places: int) -> str | None:
        """Say which limit is in the way: `group vision may have 8 GPUs at once: 7 are taken, needs 2`."""
        for who, limits, held in self._bounds(job):
            for _, most, taken, need, show, words in _each(job.ask, limits, held, places):
                if need and taken + need > most:
                    return _beyond(who, most, taken, need, show, words)
        return None

    def why_share(self, job: QueuedJob, cpus_milli: int) -> str | None:
        """Say the same of a share of so many CPUs."""
        for who, limits, held in self._bounds(job):
            if limits.cpus_milli is not None and held.cpus_milli + cpus_milli > limits.cpus_milli:
                return _beyond(who, limits.cpus_milli, held.cpus_milli, cpus_milli, show_cpus, "CPUs")
        return None

    def never(self, job: QueuedJob, places: int) -> dict[str, str]:
        """Return which limits leave too little for it even alone, by what it asks for."""
        found: dict[str, str] = {}
        for who, limits, _ in self._bounds(job):
            for key, most, _, need, show, words in _each(job.ask, limits, NOTHING, places):
                if need > most:
                    found.setdefault(key, f"asks for {_some(show(need), words)}; {who} may have {show(most)} at once")
        return found


def _beyond(who: str, most: int, taken: int, need: int, show: _Show, words: str) -> str:
    are = "is" if show(taken) == "1" else "are"
    return f"{who} may have {_some(show(most), words)} at once: {show(taken)} {are} taken, needs {show(need)}"


def _some(number: str, words: str) -> str:
    return f"{number} {words.removesuffix('s') if number == '1' else words}"


def _cpus_left(limits: Limits, held: Amount) -> int | None:
    return None if limits.cpus_milli is None else limits.cpus_milli - held.cpus_milli


def _places(ask: Ask, limits: Limits, held: Amount) -> int:
    """A workload counts as one, however many places it has."""
    if limits.workloads is not None and held.workloads >= limits.workloads:
        return 0
    fits = UNBOUNDED
    if limits.gpus is not None and ask.gpus:
        fits = min(fits, (limits.gpus - held.gpus) // ask.gpus)
    if limits.cpus_milli is not None and ask.cpus_milli:
        fits = min(fits, (limits.cpus_milli - held.cpus_milli) // ask.cpus_milli)
    return max(fits, 0)


def _each(ask: Ask, limits: Limits, held: Amount, places: int) -> Iterable[tuple[str, int, int, int, _Show, str]]:
    if limits.workloads is not None:
        yield "workloads", limits.workloads, held.workloads, 1, str, "workloads"
    if limits.gpus is not None and ask.gpus:
        yield "accelerators", limits.gpus, held.gpus, places * ask.gpus, str, "GPUs"
    if limits.cpus_milli is not None:
        yield "cpus", limits.cpus_milli, held.cpus_milli, places * (ask.cpus_milli or 0), show_cpus, "CPUs"
