"""The processes of this machine that use the most, whoever started them."""

from __future__ import annotations

from pathlib import Path

from penstock.engines.local import records
from penstock.engines.local.inside import Process
from penstock.engines.local.layout import run_of
from penstock.engines.local.measuring import PAGE, TICKS, user_of
from penstock.engines.local.supervisor.processes import read_text
from penstock.wire import ProcessMeasure

MOST = 5


def busiest(
    before: dict[int, Process], after: dict[int, Process], seconds: float, runs: Path
) -> tuple[ProcessMeasure, ...]:
    found = [(_percent(process, before.get(process.pid), seconds), process) for process in after.values()]
    found.sort(key=lambda pair: (-pair[0], pair[1].pid))
    return tuple(_shown(process, percent, _workload(process, after, runs)) for percent, process in found[:MOST])


def _percent(process: Process, earlier: Process | None, seconds: float) -> float:
    known = earlier.ticks if earlier and earlier.began == process.began else 0
    return round(100 * (process.ticks - known) / TICKS / seconds, 1)


def _shown(process: Process, percent: float, workload: str | None) -> ProcessMeasure:
    folder = f"/proc/{process.pid}"
    return ProcessMeasure(
        pid=process.pid,
        user=user_of(folder),
        cpu_percent=percent,
        memory_bytes=int((read_text(f"{folder}/statm") or "0 0").split()[1]) * PAGE,
        command=(read_text(f"{folder}/comm") or "").strip(),
        workload=workload,
    )


def _workload(process: Process, known: dict[int, Process], runs: Path) -> str | None:
    """Whose supervisor is above it; what `exec` started hangs elsewhere, and nobody is named."""
    up: Process | None = process
    while up and up.pid > 1:
        for word in (read_text(f"/proc/{up.pid}/cmdline") or "").split("\0"):
            place = Path(word)
            if place.parent == runs and (run := run_of(place.name)):
                began = records.read_began(place)
                return run.workload_id if began and began.get("pid") == up.pid else None
        up = known.get(up.parent)
    return None
