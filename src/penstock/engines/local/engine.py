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
from penstock.engines.local import doctor, state, usage
from penstock.engines.local import inspect as looking
from penstock.engines.local import runs as launching
from penstock.engines.local.cgroups import Limits, detect
from penstock.engines.local.changes import Watching
from penstock.engines.local.events import happenings
from penstock.engines.local.exec import execute
from penstock.engines.local.gpus import Gauges, Reading, find_gpus, lock_directory_check, locked
from penstock.engines.local.layout import Layout, disk_errors
from penstock.engines.local.logs import Following
from penstock.engines.local.nodes import cpu_product, machine
from penstock.engines.local.ports import Connecting
from penstock.engines.local.refusals import notices, refusals
from penstock.engines.local.spec.mounts import memory_of_machine
from penstock.engines.local.spec.plan import Machine
from penstock.engines.local.spec.script import write_programs
from penstock.engines.local.state import Progress
from penstock.engines.local.supervisor.erase import erase
from penstock.engines.local.supervisor.processes import remove_group
from penstock.engines.local.volumes import Claims
from penstock.engines.shared.disk import disk_of
from penstock.engines.shared.refusals import by_place
from penstock.errors import PenstockError, StorageFull
from penstock.settings import Settings
from penstock.wire.measures import Measure, NodeMeasure
from penstock.wire.server import Check

log = logging.getLogger(__name__)
REMOVE_PATIENCE = 1000
"""Hundredths of a second a run that is removed while it runs has to end."""


class LocalEngine:
    name = "local"
    schedules = False
    enforces_sizes = False
    helper_image = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._layout = Layout(settings)
        self._claims = Claims(settings, self._layout)
        self._limits = Limits()
        self._gpus: tuple[Gpu, ...] = ()
        self._gauges = Gauges()
        self._connecting = Connecting()
        self._holding: dict[Run, tuple[str, ...]] = {}
        """GPUs that runs of ours hold or are about to."""
        self._progress: dict[Run, Progress] = {}
        self._sandbox_works = False
        self._cleaning: dict[Run, asyncio.Task[None]] = {}
        self._closing = AsyncExitStack()
        # What takes as long as users' directories are large has threads of its own, so that no other work waits for it.
        self._scans = ThreadPoolExecutor(2, "penstock-scan")
        self._erases = ThreadPoolExecutor(2, "penstock-erase")
        self._scanning: dict[str, asyncio.Future[int]] = {}

    async def open(self) -> None:
        self._layout.make()
        try:
            with disk_errors(self._layout.programs):
                write_programs(self._layout.programs)
        except StorageFull as error:  # what is there from the last time will do
            log.warning("%s", error)
        self._limits = await asyncio.to_thread(detect, self._settings.max_processes)
        self._gpus = await asyncio.to_thread(find_gpus)
        if self._gpus:
            await self._gauges.open()
        self._closing.callback(self._gauges.close)
        with suppress(PenstockError):  # whoever starts something then hears it
            await self._try_sandbox()
        self._following = Following(self._layout)
        self._closing.callback(self._following.close)
        self._watching = Watching(self._layout, self._following)
        self._closing.callback(self._watching.close)
        for run in self._layout.all_runs():
            self._adopt(run)
        sweeping = asyncio.create_task(self._erase(_sweep, self._layout.runs))
        self._closing.push_async_callback(asyncio.wait, [sweeping])

    async def close(self) -> None:
        """Stop looking, as far as `open` came. What runs goes on."""
        await asyncio.gather(*self._cleaning.values())
        await self._closing.aclose()
        for scan in list(self._scanning.values()):
            scan.cancel()

    def _adopt(self, run: Run) -> None:
        run_dir = self._layout.run_dir(run)
        if state.ended(run_dir) or not run_dir.is_dir():
            return
        if (began := state.read_began(run_dir)) is not None:
            self._holding[run] = tuple(began.get("gpus", ()))
            self._watching.add(run, began.get("pid"), began.get("array") or 0)
        elif state.lock_is_held(run_dir):
            self._watching.await_began(run)

    # -- the machine ---------------------------------------------------------------------------------------------

    async def checks(self) -> list[Check]:
        found = await asyncio.to_thread(doctor.all_checks, self._settings, self._limits, self._gpus)
        locks = lock_directory_check(self._settings.gpu_lock_dir, self._gpus)
        return [*found, locks] if locks else found

    async def nodes(self) -> list[Node]:
        ours = {uuid for uuids in self._holding.values() for uuid in uuids}
        others = [gpu.uuid for gpu in self._gpus if gpu.uuid not in ours]
        taken = set(locked(self._settings.gpu_lock_dir, others))
        readings = await self._gauges.read()
        disk = disk_of(self._settings)
        return [
            Node(
                name=socket.gethostname(),
                cpus_milli=parse_cpus(self._settings.cpus) if self._settings.cpus else _cpus(),
                memory_bytes=parse_bytes(self._settings.memory) if self._settings.memory else memory_of_machine(),
                gpus=tuple(_seen(gpu, readings.get(gpu.uuid), elsewhere=gpu.uuid in taken) for gpu in self._gpus),
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
        """However many ask for a volume at once, it is scanned once."""
        scan = self._scanning.get(volume.id)
        if scan is None:
            loop = asyncio.get_running_loop()
            scan = self._scanning[volume.id] = loop.run_in_executor(self._scans, self._claims.usage, volume)
            scan.add_done_callback(partial(self._scanned, volume.id))
        return await asyncio.shield(scan)

    def _scanned(self, volume_id: str, scan: asyncio.Future[int]) -> None:
        self._scanning.pop(volume_id, None)
        if not scan.cancelled():
            scan.exception()  # seen, even if all who asked have gone

    async def _erase(self, work: Callable[[Any], None], what: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._erases, work, what)

    # -- runs ----------------------------------------------------------------------------------------------------

    async def refusals(self, spec: Spec, owner: tuple[str, str] = ("", "")) -> list[Refusal]:
        if not spec.scratch:  # nothing that bubblewrap is asked for
            return refusals(spec, self._settings, "")
        return await asyncio.to_thread(refusals, spec, self._settings, self._bwrap())

    async def notices(self, spec: Spec) -> list[str]:
        return notices(spec, self._settings)

    def _bwrap(self) -> str:
        """Empty where there is no sandbox, or none can be made: whoever starts something then hears it."""
        return (shutil.which("bwrap") or "") if self._settings.sandbox == "bubblewrap" else ""

    async def start(self, launch: Launch) -> None:
        run = Run(launch.workload_id, launch.attempt)
        await asyncio.shield(asyncio.ensure_future(self._start(run, launch)))

    async def _start(self, run: Run, launch: Launch) -> None:
        run_dir = self._layout.run_dir(run)
        if run not in self._holding and state.read_began(run_dir) is None:
            await self._try_sandbox()
            self._holding[run] = tuple(uuid for rank in launch.gpus for uuid in rank)
            try:
                await self._launch(run_dir, launch)
            except BaseException:
                del self._holding[run]
                raise
        self._adopt(run)
        self._following.ring(run)

    async def _try_sandbox(self) -> None:
        if not self._sandbox_works:
            await asyncio.to_thread(doctor.probe_sandbox, self._settings)
            self._sandbox_works = True

    async def _launch(self, run_dir: Path, launch: Launch) -> None:
        bwrap = doctor.find_bwrap() if self._settings.sandbox == "bubblewrap" else ""
        gpus = {gpu.uuid: gpu for gpu in self._gpus}
        machine = Machine(self._settings, self._layout, self._claims, self._limits, gpus, bwrap)
        process = None
        while process is None and state.read_began(run_dir) is None and not state.ended(run_dir):
            process = await asyncio.to_thread(launching.begin, run_dir, launch, machine)
        if process:
            await launching.finished(process, run_dir)

    async def observe(self, run: Run) -> Report:
        run_dir = self._layout.run_dir(run)
        report = await self._report(run, run_dir)
        if report.presence in (Presence.ended, Presence.lost):
            self._holding.pop(run, None)
            self._watching.drop(run)
            self._following.ring(run)  # nobody else will, now that its supervisor is not watched any more
        if report.presence is Presence.running:
            self._adopt(run)
        if report.presence is Presence.lost and run not in self._cleaning:
            self._cleaning[run] = asyncio.create_task(self._erase(_clean_up, run_dir))
        return report

    async def _report(self, run: Run, run_dir: Path) -> Report:
        progress = self._progress.get(run) or Progress(run_dir, run.attempt)
        look = partial(state.report, run_dir, run.attempt, progress)
        report = await asyncio.to_thread(look) if state.is_long(run_dir) else look()
        if report.presence is Presence.running:
            self._progress[run] = progress
        else:
            self._progress.pop(run, None)
        return report

    async def stop(self, run: Run, grace: int) -> None:
        await asyncio.to_thread(launching.stop, self._layout.run_dir(run), self._layout.mode, grace)

    async def remove(self, run: Run) -> None:
        """Delete all that is left of a run; one that still runs is ended first."""
        run_dir = self._layout.run_dir(run)
        if state.lock_is_held(run_dir):
            await self.stop(run, 0)
            for _ in range(REMOVE_PATIENCE):
                if not state.lock_is_held(run_dir):
                    break
                await asyncio.sleep(0.01)
        self._holding.pop(run, None)
        self._progress.pop(run, None)
        self._watching.drop(run)
        if cleaning := self._cleaning.pop(run, None):
            await cleaning
        await self._erase(_remove, run_dir)
        self._following.forget(run)

    async def runs(self) -> list[Run]:
        return await asyncio.to_thread(self._layout.all_runs)

    def changes(self) -> AsyncIterator[Run]:
        return self._watching.changes()

    async def events(self, run: Run) -> list[Event]:
        return await asyncio.to_thread(happenings, self._layout.run_dir(run))

    def logs(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        return self._following.read(run, part, query)

    async def exec(self, run: Run, part: int, command: Sequence[str], terminal: Terminal | None) -> Session:
        return await execute(self._layout.run_dir(run), part, command, terminal)

    # -- looking -------------------------------------------------------------------------------------------------

    async def inspect(self, run: Run) -> dict[str, Any]:
        return await asyncio.to_thread(looking.inspect, self._layout.run_dir(run), run.attempt)

    async def top(self, run: Run, part: int) -> Measure:
        gpus = {gpu.uuid: gpu for gpu in self._gpus}
        return await usage.measure(self._layout.run_dir(run), part, gpus, await self._gauges.read())

    async def activity(self, names: Sequence[str], wait: float = 0) -> list[NodeMeasure]:
        name = socket.gethostname()
        if name not in names:
            return []
        gpus = {gpu.uuid: gpu for gpu in self._gpus}
        return [await machine(name, gpus, await self._gauges.read())]

    async def gpu_use(self, workloads: Sequence[Workload]) -> GpuUse:
        return by_place(workloads, usage.measures(await self._gauges.read()))

    async def connect(self, run: Run, part: int, port: int) -> Session:
        return await self._connecting.connect(self._layout.run_dir(run), part, port)


def _seen(gpu: Gpu, reading: Reading | None, *, elsewhere: bool) -> Gpu:
    known = {"memory_used_bytes": reading.memory_used_bytes, "processes": reading.processes} if reading else {}
    return gpu.model_copy(update={"taken_elsewhere": elsewhere, **known})


def _clean_up(run_dir: Path) -> None:
    """What a killed supervisor could not: its control groups and the private directories of its nodes."""
    for path in (state.read_began(run_dir) or {}).get("cgroups", ()):
        remove_group(path)
    for path in run_dir.glob("rank-*"):
        _try_to_erase(path)


def _sweep(runs: Path) -> None:
    """Finish removals that a crash cut short."""
    for path in runs.glob(".removed-*"):
        _try_to_erase(path)


def _try_to_erase(path: Path) -> None:
    try:
        erase(str(path))
    except OSError as error:
        log.warning("%s could not be removed: %s", path, error)


def _remove(run_dir: Path) -> None:
    if not run_dir.is_dir():
        return
    with disk_errors(run_dir):
        for path in (state.read_began(run_dir) or {}).get("cgroups", ()):
            remove_group(path)
        grave = run_dir.with_name(f".removed-{run_dir.name}")
        erase(str(grave))
        run_dir.rename(grave)
        erase(str(grave))


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) * 1000
