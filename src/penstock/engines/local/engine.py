"""The embedded engine: this machine, with nothing else installed."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.domain.nodes import Gpu, Node
from penstock.domain.quantities import parse_bytes, parse_cpus
from penstock.domain.users import Account
from penstock.domain.volumes import StorageClass, Volume
from penstock.domain.workloads import Spec, Workload
from penstock.engines.base import (
    Event,
    GpuUse,
    Launch,
    LogQuery,
    Presence,
    Refusal,
    Report,
    Run,
    Session,
    Terminal,
    VolumeReport,
)
from penstock.engines.local import doctor, runs, usage
from penstock.engines.local.cgroups import CgroupLimits, detect
from penstock.engines.local.changes import RunWatcher
from penstock.engines.local.events import run_events
from penstock.engines.local.exec import start_program
from penstock.engines.local.gpus import GpuMonitor, find_locked
from penstock.engines.local.inspect import inspect_run
from penstock.engines.local.layout import Layout, disk_errors
from penstock.engines.local.logs import LocalLogs
from penstock.engines.local.nodes import cpu_product, measure_machine
from penstock.engines.local.ports import connect
from penstock.engines.local.refusals import notices, refusals
from penstock.engines.local.spec.mounts import memory_of_machine
from penstock.engines.local.spec.plan import Machine
from penstock.engines.local.spec.script import write_programs
from penstock.engines.local.state import snapshot
from penstock.engines.local.state.snapshot import RunReader
from penstock.engines.local.volumes import LocalClaims
from penstock.engines.shared.disk import disk_of
from penstock.engines.shared.refusals import by_place
from penstock.errors import PenstockError, StorageFull
from penstock.settings import Settings
from penstock.wire.measures import GpuMeasure, Measure, NodeMeasure
from penstock.wire.server import Check

log = logging.getLogger(__name__)
REMOVE_PATIENCE = 1000
"""Hundredths of a second that a run which is removed has to end."""


class LocalEngine:
    name = "local"
    schedules = False
    enforces_sizes = False
    helper_image = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._layout = Layout(settings)
        self._claims = LocalClaims(settings, self._layout)
        self._limits = CgroupLimits()
        self._gpus = GpuMonitor()
        self._held_gpus: dict[Run, tuple[str, ...]] = {}
        """GPUs that runs of ours hold or are about to hold."""
        self._readers: dict[Run, RunReader] = {}
        self._sandbox_works = False
        self._exit_stack = AsyncExitStack()
        # Work that takes longer the more files users have gets threads of its own, so that nothing else waits for it.
        self._scans = ThreadPoolExecutor(2, "penstock-scan")
        self._erases = ThreadPoolExecutor(2, "penstock-erase")
        self._volume_scans: dict[str, asyncio.Future[int]] = {}

    async def open(self) -> None:
        self._layout.make()
        try:
            with disk_errors(self._layout.programs):
                write_programs(self._layout.programs)
        except StorageFull as error:  # what is there from the last time will do
            log.warning("%s", error)
        self._limits = await asyncio.to_thread(detect, self._settings.max_processes)
        await self._gpus.open()
        self._exit_stack.callback(self._gpus.close)
        with suppress(PenstockError):  # whoever starts something then hears it
            await self._try_sandbox()
        self._logs = LocalLogs(self._layout)
        self._exit_stack.callback(self._logs.close)
        self._watcher = RunWatcher(self._layout, self._logs.wake)
        self._exit_stack.push_async_callback(self._watcher.close)
        for run in self._layout.all_runs():
            self._adopt(run)
        removals = asyncio.create_task(self._erase(runs.finish_removals, self._layout.runs))
        self._exit_stack.push_async_callback(asyncio.wait, [removals])

    async def close(self) -> None:
        await self._exit_stack.aclose()
        for scan in list(self._volume_scans.values()):
            scan.cancel()

    def _adopt(self, run: Run) -> None:
        run_dir = self._layout.run_dir(run)
        if snapshot.has_ended(run_dir) or not run_dir.is_dir():
            return
        if (began := snapshot.read_began(run_dir)) is not None:
            self._held_gpus[run] = tuple(began.get("gpus", ()))
            self._watcher.add(run, began.get("pid"), began.get("array") or 0)
        elif snapshot.lock_is_held(run_dir):
            self._watcher.await_began(run, self._adopt)

    # -- the machine ---------------------------------------------------------------------------------------------

    async def checks(self) -> list[Check]:
        gpus = list(self._gpus.known.values())
        return await asyncio.to_thread(doctor.check_all, self._settings, self._limits, gpus)

    async def nodes(self) -> list[Node]:
        ours = {uuid for uuids in self._held_gpus.values() for uuid in uuids}
        taken = find_locked(self._settings.gpu_lock_dir, [uuid for uuid in self._gpus.known if uuid not in ours])
        measures = await self._gpus.read()
        disk = disk_of(self._settings)
        return [
            Node(
                name=socket.gethostname(),
                cpus_milli=parse_cpus(self._settings.cpus) if self._settings.cpus else _cpus(),
                memory_bytes=parse_bytes(self._settings.memory) if self._settings.memory else memory_of_machine(),
                gpus=tuple(
                    _seen(gpu, measures[uuid], elsewhere=uuid in taken) for uuid, gpu in self._gpus.known.items()
                ),
                cpu_product=cpu_product(),
                version=__version__,
                full=disk.said() if disk.is_short else None,
                limits_enforced=self._limits.enforced,
            )
        ]

    # -- volumes -------------------------------------------------------------------------------------------------

    async def storage_classes(self) -> list[StorageClass]:
        return await asyncio.to_thread(self._claims.classes)

    async def create_volume(self, volume: Volume, account: Account) -> None:
        await asyncio.to_thread(self._claims.create, volume, account)

    async def delete_volume(self, volume: Volume) -> None:
        await self._erase(self._claims.delete, volume)

    async def volume_reports(self, volumes: Sequence[Volume]) -> dict[str, VolumeReport]:
        return await asyncio.to_thread(lambda: {volume.id: self._claims.report(volume) for volume in volumes})

    async def volume_usage(self, volume: Volume) -> int:
        """Measure a volume once, however many ask for it at the same time."""
        scan = self._volume_scans.get(volume.id)
        if scan is None:
            loop = asyncio.get_running_loop()
            scan = self._volume_scans[volume.id] = loop.run_in_executor(self._scans, self._claims.usage, volume)
            scan.add_done_callback(partial(self._scanned, volume.id))
        return await asyncio.shield(scan)

    def _scanned(self, volume_id: str, scan: asyncio.Future[int]) -> None:
        self._volume_scans.pop(volume_id, None)
        if not scan.cancelled():
            scan.exception()  # seen, even if all who asked have gone

    async def _erase(self, work: Callable[[Any], None], what: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._erases, work, what)

    # -- runs ----------------------------------------------------------------------------------------------------

    async def refusals(self, spec: Spec, owner: tuple[str, str] = ("", "")) -> list[Refusal]:
        return await asyncio.to_thread(refusals, spec, self._settings, self._bwrap())

    async def notices(self, spec: Spec) -> list[str]:
        return notices(spec, self._settings)

    def _bwrap(self) -> str:
        """Return the path of bubblewrap; empty without a sandbox or where it is not installed, which each start
        reports."""
        return (shutil.which("bwrap") or "") if self._settings.sandbox == "bubblewrap" else ""

    async def start(self, launch: Launch) -> None:
        run = Run(launch.workload_id, launch.attempt)
        await asyncio.shield(asyncio.ensure_future(self._start(run, launch)))

    async def _start(self, run: Run, launch: Launch) -> None:
        run_dir = self._layout.run_dir(run)
        if run not in self._held_gpus and not snapshot.has_begun(run_dir):
            await self._try_sandbox()
            self._held_gpus[run] = tuple(uuid for rank in launch.gpus for uuid in rank)
            try:
                await self._launch(run_dir, launch)
            except BaseException:
                del self._held_gpus[run]
                raise
        self._adopt(run)
        self._logs.wake(run)

    async def _try_sandbox(self) -> None:
        if not self._sandbox_works:
            await asyncio.to_thread(doctor.probe_sandbox, self._settings)
            self._sandbox_works = True

    async def _launch(self, run_dir: Path, launch: Launch) -> None:
        bwrap = doctor.find_bwrap() if self._settings.sandbox == "bubblewrap" else ""
        machine = Machine(self._settings, self._layout, self._claims, self._limits, self._gpus.known, bwrap)
        process = None
        while process is None and not snapshot.has_begun(run_dir) and not snapshot.has_ended(run_dir):
            process = await asyncio.to_thread(runs.start_supervisor, run_dir, launch, machine)
        if process:
            await runs.await_began(process, run_dir)

    async def observe(self, run: Run) -> Report:
        reader = self._readers.get(run) or RunReader(self._layout.run_dir(run), run.attempt)
        report = await asyncio.to_thread(reader.read)
        if report.presence is Presence.running:
            self._readers[run] = reader
        else:
            self._readers.pop(run, None)
        return report

    async def stop(self, run: Run, grace: int) -> None:
        await asyncio.to_thread(runs.request_stop, self._layout.run_dir(run), self._layout.mode, grace)

    async def settle(self, run: Run, keep: int) -> None:
        """Release what the run held, and remove what a killed supervisor left; the record and the log stay."""
        self._let_go(run)
        self._logs.wake(run)  # its supervisor may end later than this, and nobody looks at it any more
        run_dir = self._layout.run_dir(run)
        if not snapshot.has_ended(run_dir) and not snapshot.lock_is_held(run_dir):
            await self._erase(runs.clean_up, run_dir)

    async def remove(self, run: Run) -> None:
        run_dir = self._layout.run_dir(run)
        if snapshot.lock_is_held(run_dir):
            await self.stop(run, 0)
            for _ in range(REMOVE_PATIENCE):
                if not snapshot.lock_is_held(run_dir):
                    break
                await asyncio.sleep(0.01)
        self._let_go(run)
        self._readers.pop(run, None)
        await self._erase(runs.remove_run, run_dir)
        self._logs.forget(run)

    def _let_go(self, run: Run) -> None:
        self._held_gpus.pop(run, None)
        self._watcher.drop(run)

    async def runs(self) -> list[Run]:
        return await asyncio.to_thread(self._layout.all_runs)

    def changes(self) -> AsyncIterator[Run]:
        return self._watcher.changes()

    async def events(self, run: Run) -> list[Event]:
        return await asyncio.to_thread(run_events, self._layout.run_dir(run))

    def logs(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        return self._logs.read(run, part, query)

    async def exec(self, run: Run, part: int, command: Sequence[str], terminal: Terminal | None) -> Session:
        return await start_program(self._layout.run_dir(run), part, command, terminal)

    # -- looking -------------------------------------------------------------------------------------------------

    async def inspect(self, run: Run) -> dict[str, Any]:
        return await asyncio.to_thread(inspect_run, self._layout.run_dir(run), run.attempt)

    async def top(self, run: Run, part: int) -> Measure:
        return await usage.measure(self._layout.run_dir(run), part, await self._gpus.read())

    async def activity(self, names: Sequence[str], wait: float = 0) -> list[NodeMeasure]:
        name = socket.gethostname()
        if name not in names:
            return []
        return [await measure_machine(name, (await self._gpus.read()).values())]

    async def gpu_use(self, workloads: Sequence[Workload]) -> GpuUse:
        return by_place(workloads, await self._gpus.read())

    async def connect(self, run: Run, part: int, port: int) -> Session:
        return await connect(self._layout.run_dir(run), part, port)


def _seen(gpu: Gpu, measure: GpuMeasure, *, elsewhere: bool) -> Gpu:
    seen = {"memory_used_bytes": measure.memory_used_bytes, "processes": measure.processes or ()}
    return gpu.model_copy(update={"taken_elsewhere": elsewhere, **seen})


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) * 1000
