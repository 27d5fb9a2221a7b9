"""What the scheduler knows in memory: nodes and jobs in the pool, and those that wait outside it.

Rebuilt from the store on start; the store has the last word on every decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from penstock.domain.nodes import Node
from penstock.domain.quantities import parse_cpus
from penstock.domain.scheduling.demand import Ask, ask_of
from penstock.domain.scheduling.explain import WaitCause
from penstock.domain.scheduling.pool import Pool
from penstock.domain.states import Reason
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine, HasHosts
from penstock.services.people.people import People
from penstock.services.scheduler.demand import held_of, job_of
from penstock.settings import Settings

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
