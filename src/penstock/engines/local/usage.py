"""Measure what a run uses, from the kernel's counters read twice."""

from __future__ import annotations

import asyncio
import functools
import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from penstock.domain.model import now
from penstock.engines.local.state.parts import RunningPart, find_part, part_processes
from penstock.engines.shared.processes import Process, read_count, read_text, read_values
from penstock.wire.measures import GpuMeasure, Measure, ProcessMeasure

SAMPLE_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LONGEST_COMMAND = 300
MOST_PROCESSES = 200
"""The most processes of a part that are shown, the busiest first."""


class PartSample(NamedTuple):
    at: float
    busy: float | None
    """Seconds of processor time, also of processes that have ended; None where nobody counts them."""
    processes: Mapping[tuple[int, int], Process]


async def measure(run_dir: Path, number: int, gpus: Mapping[str, GpuMeasure]) -> Measure:
    """Measure a part; raises Conflict if it does not run."""
    part = await asyncio.to_thread(find_part, run_dir, number)
    before = await asyncio.to_thread(_sample, part)
    await asyncio.sleep(SAMPLE_SECONDS)
    return await asyncio.to_thread(_measure, part, before, tuple(gpus[uuid] for uuid in part.gpus if uuid in gpus))


def _sample(part: RunningPart) -> PartSample:
    found = {(process.pid, process.began): process for process in part_processes(part)}
    return PartSample(monotonic(), _busy(part), found)


def _measure(part: RunningPart, before: PartSample, gpus: tuple[GpuMeasure, ...]) -> Measure:
    after = _sample(part)
    seconds = after.at - before.at
    shown = [_process(each, before, seconds) for each in after.processes.values()]
    shown.sort(key=lambda each: (-each.cpu_percent, -each.memory_bytes, each.pid))
    if before.busy is not None and after.busy is not None:
        cpu = round(100 * (after.busy - before.busy) / seconds, 1)
    else:
        cpu = round(sum(each.cpu_percent for each in shown), 1)
    read, written = _disk(after.processes.values())
    memory = _memory(part)
    return Measure(
        at=now(),
        cpu_percent=max(cpu, 0.0),
        memory_bytes=sum(each.memory_bytes for each in shown) if memory is None else memory,
        memory_limit_bytes=_memory_limit(part),
        gpus=gpus,
        disk_read_bytes=read,
        disk_written_bytes=written,
        processes=tuple(shown[:MOST_PROCESSES]),
        message=f"{len(shown):,} processes, of which the busiest are shown" if len(shown) > MOST_PROCESSES else None,
    )


def _process(process: Process, before: PartSample, seconds: float) -> ProcessMeasure:
    earlier = before.processes.get((process.pid, process.began))
    ticks = process.ticks - (earlier.ticks if earlier else 0)
    folder = f"/proc/{process.pid}"
    resident = (read_text(f"{folder}/statm") or "0 0").split()[1]
    words = (read_text(f"{folder}/cmdline") or "").replace("\0", " ").strip()
    return ProcessMeasure(
        pid=process.pid,
        user=_user_of(folder),
        cpu_percent=round(100 * ticks / TICKS / seconds, 1),
        memory_bytes=int(resident) * PAGE,
        command=(words or f"[{(read_text(f'{folder}/comm') or '').strip()}]")[:LONGEST_COMMAND],
    )


def _user_of(folder: str) -> str:
    try:
        return _name(os.stat(folder).st_uid)  # noqa: PTH116
    except FileNotFoundError:
        return "?"


@functools.cache
def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


# -- control groups ----------------------------------------------------------------------------------------------


def _busy(part: RunningPart) -> float | None:
    for group in part.node["cgroups"]:
        if (nanoseconds := read_count(f"{group['path']}/cpuacct.usage")) is not None:
            return nanoseconds / 1e9
        if (microseconds := read_count(f"{group['path']}/cpu.stat", "usage_usec")) is not None:
            return microseconds / 1e6
    return None


def _memory(part: RunningPart) -> int | None:
    """Return what is in use, without the file cache that the kernel keeps while nobody else wants the room."""
    for group in part.node["cgroups"]:
        for file, kept in (("memory.usage_in_bytes", "total_inactive_file"), ("memory.current", "inactive_file")):
            if (used := read_count(f"{group['path']}/{file}")) is not None:
                return max(used - (read_count(f"{group['path']}/memory.stat", kept) or 0), 0)
    return None


def _memory_limit(part: RunningPart) -> int | None:
    written = [pair for group in part.node["cgroups"] for pair in group["write"]]
    return next((int(value) for file, value in written if file in ("memory.limit_in_bytes", "memory.max")), None)


# -- the disk -----------------------------------------------------------------------------------------------


def _disk(found: Iterable[Process]) -> tuple[int | None, int | None]:
    """Count what reached the disk for those that live, and for what they started and saw end."""
    each = [count for process in found if (count := read_values(f"/proc/{process.pid}/io"))]
    if not each:
        return None, None
    return sum(int(count["read_bytes"]) for count in each), sum(int(count["write_bytes"]) for count in each)
