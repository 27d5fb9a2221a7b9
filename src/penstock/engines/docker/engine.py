"""The Docker engine: a pool of Docker hosts, with nothing of ours installed on them.

Each host is watched by a link of its own (`host`, `hosts`), so reading costs it nothing. A run is containers that are
started step by step (`runs`) from a body of ours (`spec`), and is what a snapshot of them says (`state`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from penstock.domain.nodes import Host, Node
from penstock.domain.users import Account
from penstock.domain.volumes import Storage, StorageClass, Volume
from penstock.domain.workloads import Spec, Workload
from penstock.engines.base import (
    Event,
    Found,
    GpuUse,
    Launch,
    LeftOver,
    LogQuery,
    Presence,
    Refusal,
    Report,
    Run,
    Session,
    Terminal,
    VolumeReport,
)
from penstock.engines.docker import adoption, doctor, inspect, nodes, refusals
from penstock.engines.docker.api.errors import translated_errors
from penstock.engines.docker.cpus import DedicatedCpus
from penstock.engines.docker.events import events_of
from penstock.engines.docker.exec import DockerSessions
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.logs import ContainerLogs
from penstock.engines.docker.ports import DockerPorts
from penstock.engines.docker.runs.runs import DockerRuns
from penstock.engines.docker.runs.steps import LaunchSteps
from penstock.engines.docker.settings import read_settings
from penstock.engines.docker.usage import DiskLimits, HostGpus, MemoryPeaks
from penstock.engines.docker.volumes import DockerClaims
from penstock.engines.shared.refusals import by_place
from penstock.engines.shared.wakeup import Changes
from penstock.errors import Unavailable
from penstock.settings import Settings
from penstock.wire.measures import Measure, NodeMeasure
from penstock.wire.server import Check


class DockerEngine:
    name = "docker"
    schedules = False
    enforces_sizes = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made = read_settings(settings)
        self.helper_image: str | None = self._made.helper_image
        self._changes = Changes()
        self._hosts = DockerHosts(settings, self._made, self._changed)
        self._claims = DockerClaims(self._hosts, self._made)
        self._cpus = DedicatedCpus(self._hosts)
        self._gauges = HostGpus(self._hosts)
        launching = LaunchSteps(self._hosts, self._claims, self._cpus, self._made)
        self._runs = DockerRuns(self._hosts, launching, self._changes, self._made)
        self._disks = DiskLimits(self._hosts, self._claims, self._made.disk_scan, self._runs.over_its_disk)
        self._logs = ContainerLogs(self._hosts, self._changes.follow, self._never_begins)
        self._sessions = DockerSessions(self._hosts)
        self._ports = DockerPorts(self._hosts)
        self._watches = (self._disks, self._cpus, MemoryPeaks(self._hosts), self._sessions, self._ports)

    async def open(self) -> None:
        """Begin; nothing is there until hosts are named."""
        self._gauges.open()

    async def close(self) -> None:
        """Stop looking, everywhere at once: a host that hangs is waited for a while."""
        each = (*self._watches, self._gauges, self._runs, self._hosts)
        await asyncio.gather(*(part.close() for part in each))

    async def use_hosts(self, hosts: Sequence[Host], storages: Sequence[Storage] = ()) -> None:
        self._claims.use(storages)
        await self._hosts.use(hosts)

    async def lacking(self, host: Host, runs: Sequence[Run]) -> list[Run]:
        with translated_errors():
            return await self._hosts.lacking(host, runs)

    def _changed(self, run: Run) -> None:
        """Do first what cannot wait, then tell whoever wants to know."""
        self._runs.watch(run)
        for each in self._watches:
            each.watch(run)
        for seen in self._hosts.parts(run).values():
            if seen.over and seen.exit_code and (link := self._hosts.get(seen.host)):
                link.space.doubt()
        self._changes.tell(run)

    def _never_begins(self, run: Run, part: int) -> bool:
        try:
            return self._runs.observe(run).presence is Presence.ended
        except Unavailable:  # nobody can tell now
            return False

    # -- hosts -------------------------------------------------------------------------------------------------------

    async def checks(self) -> list[Check]:
        return doctor.all_checks(self._hosts, self._settings)

    async def nodes(self) -> list[Node]:
        return self._hosts.nodes()

    async def found(self, nodes: Collection[str]) -> Found:
        with translated_errors():
            return await adoption.read_records(self._hosts, self._made.installation, nodes)

    async def left_over(self) -> list[LeftOver]:
        return [LeftOver(seen.run, seen.host, seen.name) for seen in self._runs.left_over()]

    # -- volumes -----------------------------------------------------------------------------------------------------

    async def storage_classes(self) -> list[StorageClass]:
        return self._claims.classes()

    async def create_volume(self, volume: Volume, account: Account) -> None:
        with translated_errors():
            await self._claims.create(volume, account)

    async def delete_volume(self, volume: Volume) -> None:
        with translated_errors():
            await self._claims.delete(volume)

    async def volume_reports(self, volumes: Sequence[Volume]) -> dict[str, VolumeReport]:
        with translated_errors():
            return await self._claims.reports(volumes)

    async def volume_usage(self, volume: Volume) -> int:
        with translated_errors():
            return await self._claims.usage(volume)

    async def volume_users(self, volume: Volume) -> list[str]:
        with translated_errors():
            return await self._claims.users(volume)

    async def volume_node(self, volume: Volume) -> str | None:
        with translated_errors():
            return await self._claims.node_of(volume)

    # -- runs --------------------------------------------------------------------------------------------------------

    async def refusals(self, spec: Spec, owner: tuple[str, str] = ("", "")) -> list[Refusal]:
        return refusals.refusals(spec)

    async def notices(self, spec: Spec) -> list[str]:
        return refusals.notices(spec, self._hosts.gpus_seen() if spec.idle_timeout is not None else ())

    async def start(self, launch: Launch) -> None:
        with translated_errors():
            await self._runs.start(launch)

    def remind(self, launch: Launch) -> None:
        self._runs.remind(launch)

    async def observe(self, run: Run) -> Report:
        return self._runs.observe(run)

    async def advance(self, run: Run) -> None:
        self._runs.advance(run)

    async def stop(self, run: Run, grace: int) -> None:
        with translated_errors():
            await self._runs.stop(run, grace)

    async def settle(self, run: Run, keep: int) -> None:
        """Empty its scratch disks. Its containers stay until the run is removed: they are where its log is."""
        self._runs.settle(run)
        with translated_errors():
            await self._disks.empty(run)

    async def remove(self, run: Run) -> None:
        with translated_errors():
            await self._runs.remove(run)
        self._changes.tell(run)

    async def runs(self) -> list[Run]:
        return self._runs.all()

    def changes(self) -> AsyncIterator[Run]:
        return self._changes.follow()

    async def events(self, run: Run) -> list[Event]:
        return events_of(self._hosts.parts(run))

    def logs(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        return self._logs.read(run, part, query)

    async def exec(self, run: Run, part: int, command: Sequence[str], terminal: Terminal | None) -> Session:
        return await self._sessions.enter(run, part, command, terminal)

    async def inspect(self, run: Run) -> dict[str, Any]:
        with translated_errors():
            return await inspect.inspect(self._hosts, run)

    async def top(self, run: Run, part: int) -> Measure:
        with translated_errors():
            return await inspect.top(self._hosts, self._gauges, run, part)

    async def activity(self, names: Sequence[str], wait: float = 0) -> list[NodeMeasure]:
        each = (nodes.measure_node(self._hosts, self._gauges, name) for name in names)
        return [found for found in await asyncio.gather(*each) if found]

    async def gpu_use(self, workloads: Sequence[Workload]) -> GpuUse:
        return by_place(workloads, await self._gauges.all())

    async def connect(self, run: Run, part: int, port: int) -> Session:
        return await self._ports.connect(run, part, port)
