"""What the scheduler knows in memory: nodes and jobs in the pool, those that wait outside it, and what it gave to each.

Rebuilt from the store on start; the store has the last word on every decision.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.domain.model import now
from penstock.domain.nodes import Node
from penstock.domain.quantities import parse_cpus
from penstock.domain.scheduling.demand import Allocation, Ask, PlacedJob, QueuedJob, ask_of
from penstock.domain.scheduling.explain import WaitCause
from penstock.domain.scheduling.pool import Pool
from penstock.domain.states import WAITING, Reason, State
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Wants, Workload
from penstock.engines.base import Engine, HasHosts
from penstock.services.infrastructure import LOCAL
from penstock.services.people.people import People
from penstock.settings import Settings
from penstock.store.session import Store


@dataclass(frozen=True)
class NotAssigned:
    """A job that could not have its places: its record by now, and the workloads that have what it was to get."""

    workload: Workload | None
    holders: tuple[Workload, ...] = ()
    elsewhere: bool = False
    """One of its volumes is on another node by now."""


def job_of(workload: Workload, ask: Ask) -> QueuedJob:
    return QueuedJob(
        id=workload.id,
        ask=ask,
        user=workload.user,
        group=workload.group,
        since=workload.queued_at or workload.created_at,
        priority=workload.spec.priority,
        max_duration=lasts(workload),
        unlimited=workload.session,
    )


def lasts(workload: Workload) -> int | None:
    """Return for how many seconds it runs at the longest. Each index of an array has the time for itself, and they may
    come one after the other."""
    each = workload.time_limit
    if each is None or workload.spec.array is None:
        return each
    return each * (len(workload.indexes) or workload.spec.array.count)


def held_of(workload: Workload, ask: Ask, only: str) -> PlacedJob:
    """Return what a workload has by its record; `only` is the node, where there is one to choose."""
    places = len(workload.gpus) or workload.spec.nodes
    hosts = workload.hosts or (only,) * places
    counted = workload.counted or ((ask.cpus_milli or 0, ask.memory_bytes or 0),) * places
    return PlacedJob(
        job_of(workload, ask),
        tuple(
            Allocation(
                node=hosts[min(number, len(hosts) - 1)],
                cpus_milli=counted[number][0] if number < len(counted) else 0,
                memory_bytes=counted[number][1] if number < len(counted) else 0,
                gpus=workload.gpus[number] if number < len(workload.gpus) else (),
                cpuset=workload.cpusets[number] if number < len(workload.cpusets) else (),
            )
            for number in range(places)
        ),
        workload.started_at or workload.updated_at,
    )


def write_assignments(
    tx: Store, starts: Sequence[PlacedJob], ports: Mapping[str, int], *, several: bool
) -> tuple[dict[str, NotAssigned], list[Workload]]:
    """Write the places of jobs, and on which of several nodes they are. Return those that were not placed: stopped or
    placed meanwhile, or another server gave away what they were to get; and those that wait and mount a volume whose
    node is known from now on."""
    refused: dict[str, NotAssigned] = {}
    bound: list[str] = []
    for each in starts:
        found = tx.workloads.get(each.job.id)
        if found is None or found.state not in WAITING or found.wants is not Wants.RUN:
            refused[each.job.id] = NotAssigned(found)
            continue
        places = each.places
        hosts = tuple(place.node for place in places) if several else ()
        given: dict[str, Any] = {
            "gpus": tuple(place.gpus for place in places),
            "cpusets": tuple(place.cpuset for place in places) if any(place.cpuset for place in places) else (),
            "counted": tuple((place.cpus_milli, place.memory_bytes) for place in places),
            "hosts": hosts,
            "master_port": ports[each.job.id],
        }
        if several and not _can_mount(tx, found, each, bound):
            refused[found.id] = NotAssigned(found, elsewhere=True)
            continue
        if holders := tx.locks.take(found.model_copy(update=given)):
            there = tuple(other for id_ in holders if (other := tx.workloads.get(id_)))
            refused[found.id] = NotAssigned(found, there)
            continue
        on = ", ".join(dict.fromkeys(place.node for place in places))
        found = tx.workloads.move(found, State.ASSIGNED, Reason.PLACED, f"on {on}", **given)
        if not several:  # Docker hosts tell of the further steps themselves: an image may have to be pulled first
            tx.workloads.move(found, State.LAUNCHING, Reason.PLACED)
    users = {user.id: user for volume_id in bound for user in tx.workloads.using(volume_id)}
    return refused, [user for user in users.values() if user.state in WAITING]


def _can_mount(tx: Store, workload: Workload, placed: PlacedJob, bound: list[str]) -> bool:
    """Bind volumes that no node has used yet to the node where the workload runs, and add them to `bound`. False: the
    workload must be asked for again, for a volume that it did not know the place of is elsewhere by now, or it would
    run on several nodes."""
    node, known = placed.places[0].node, dict(placed.job.ask.volumes)
    right = True
    for id_ in sorted(set(workload.volume_ids.values())):
        volume = tx.volumes.get(id_)
        if volume and volume.awaits_node:
            volume = volume.model_copy(update={"storage": f"{node}{LOCAL}"})
            tx.volumes.update(volume)
            bound.append(volume.id)
        elif volume is None or volume.storage is None or volume.many_nodes or volume.name in known:
            continue
        right &= volume.storage == f"{node}{LOCAL}" and {place.node for place in placed.places} == {node}
    return right


def write_causes(tx: Store, causes: Mapping[str, WaitCause]) -> None:
    """Write why each waits. The first cause is a line of its history; that the queue moves is not."""
    for workload_id, cause in causes.items():
        found = tx.workloads.get(workload_id)
        if found is None or found.state not in WAITING or found.wants is not Wants.RUN:
            continue
        if (found.state, found.reason) == (cause.state, cause.reason):
            changes = {"message": cause.message, "ahead": cause.ahead, "updated_at": now()}
            tx.workloads.update(found.model_copy(update=changes))
        else:
            tx.workloads.move(found, cause.state, cause.reason, cause.message, ahead=cause.ahead)


FIRST, COUNT = 20000, 10000


def free_port(workload_id: str, taken: Collection[int]) -> int:
    """Return a port below the kernel's own range; begun at a place that differs by workload, so two servers seldom
    meet."""
    start = zlib.crc32(workload_id.encode())
    for step in range(COUNT):
        port = FIRST + (start + step) % COUNT
        if port not in taken and _bindable(port):
            return port
    return FIRST


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


Homes = tuple[tuple[str, str], ...]
"""Names of volumes, and the node each is on."""


class SchedulerState:
    def __init__(
        self, engine: Engine, settings: Settings, people: People, nodes: Callable[[], Awaitable[list[Node]]]
    ) -> None:
        self._people = people
        self._nodes = nodes
        """The nodes as they may be used: what runs on them is in the records."""
        self._default_cpus = parse_cpus(settings.default_cpus)
        self._hosts = engine if isinstance(engine, HasHosts) else None
        self.several = self._hosts is not None
        """Are there nodes to choose from, that come and go?"""
        self.pool = Pool()
        self.ports: dict[str, int] = {}
        """The master port of each workload that has a place."""
        self.unlocated: dict[str, Workload] = {}
        """Workloads that wait until it is known on which nodes their volumes are."""
        self.unlocated_because: dict[str, WaitCause] = {}
        """Why it is not known yet, by workload."""
        self._barred: dict[str, Workload] = {}
        """Workloads of users of whom nothing starts any more."""
        self._groups: set[str] = set()

    def __contains__(self, workload_id: str) -> bool:
        """Does this workload wait, in the pool or outside it?"""
        return workload_id in self.pool.waiting or workload_id in self.unlocated or workload_id in self._barred

    @property
    def idle(self) -> bool:
        """Does nothing wait?"""
        return not self.pool.waiting and not self.unlocated and not self._barred

    def wait(self, workload: Workload) -> None:
        self.release(workload.id)
        if self._people.barred(workload.user):
            self._barred[workload.id] = workload
        elif self.several and workload.volume_ids:
            self.unlocated[workload.id] = workload
        else:
            self.pool.enqueue(job_of(workload, self.ask(workload)))

    def locate(self, workload: Workload, homes: Homes) -> None:
        """Its volumes are on these nodes: let it wait for room there."""
        self.unlocated_because.pop(workload.id, None)
        if self.unlocated.pop(workload.id, None):
            self.pool.enqueue(job_of(workload, self.ask(workload, homes)))

    def hold(self, workload: Workload) -> None:
        """Count what it holds by its record."""
        only = next(iter(self.pool.rooms), "")
        self.pool.hold(held_of(workload, self.ask(workload), only))
        self.ports[workload.id] = workload.master_port or 0

    def release(self, workload_id: str) -> bool:
        """Return whether that made room, or moved the queue."""
        self.ports.pop(workload_id, None)
        self.unlocated.pop(workload_id, None)
        self.unlocated_because.pop(workload_id, None)
        self._barred.pop(workload_id, None)
        return self.pool.release(workload_id)

    def causes_outside(self) -> Mapping[str, WaitCause]:
        """Return why the workloads wait that are not in the pool."""
        barred = {id_: self._people.barred(workload.user) or "" for id_, workload in self._barred.items()}
        return {id_: WaitCause(Reason.NOT_ALLOWED, why) for id_, why in barred.items()} | self.unlocated_because

    def ask(self, workload: Workload, homes: Homes = ()) -> Ask:
        return ask_of(
            workload.spec,
            self._default_cpus,
            indexes=len(workload.indexes) or None,
            groups=self._people.node_groups(workload.user),
            shares=self.several,
            together=self.several,
            volumes=homes,
            shell=workload.session,
        )

    async def homes(self, volumes: Iterable[Volume]) -> Homes:
        """Return which of these are on one node's disk: what mounts them must run there."""
        if self._hosts is None:
            return ()
        homes = [(volume.name, await self._hosts.volume_node(volume)) for volume in volumes]
        return tuple(sorted((name, node) for name, node in homes if node))

    async def refresh_nodes(self) -> None:
        nodes = {node.name: node for node in await self._nodes()}
        for node in nodes.values():
            self.pool.see(node)
        for name in self.pool.rooms.keys() - nodes.keys():
            self.pool.lose(name)

    def refresh_groups(self) -> None:
        groups = {group.name: group for group in self._people.all_groups()}
        for group in groups.values():
            self.pool.set_group(group)
        for name in self._groups - groups.keys():
            self.pool.lose_group(name)
        self._groups = set(groups)
