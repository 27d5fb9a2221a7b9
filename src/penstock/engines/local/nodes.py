"""Measure what this machine does, from the kernel's counters read twice."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Iterable
from time import monotonic
from typing import NamedTuple

from penstock.domain.model import now
from penstock.domain.quantities import show_cpus
from penstock.engines.local.usage import SAMPLE_SECONDS, TICKS
from penstock.engines.shared.counters import Traffic, read_traffic
from penstock.engines.shared.processes import read_text, read_values
from penstock.wire.measures import GpuMeasure, NodeMeasure


async def measure_machine(name: str, gpus: Iterable[GpuMeasure]) -> NodeMeasure:
    before = await asyncio.to_thread(_sample)
    await asyncio.sleep(SAMPLE_SECONDS)
    after = await asyncio.to_thread(_sample)
    seconds = after.at - before.at
    memory = {name: int(text.split()[0]) * 1024 for name, text in read_values("/proc/meminfo").items()}
    total = memory.get("MemTotal", 0)
    load = [float(word) for word in (read_text("/proc/loadavg") or "0 0 0").split()[:3]]
    told = NodeMeasure(
        name=name,
        at=now(),
        cpu_product=cpu_product(),
        cpus=show_cpus((os.cpu_count() or 1) * 1000),
        cpu_percent=round(100 * (after.busy - before.busy) / TICKS / seconds, 1),
        load=(load[0], load[1], load[2]),
        memory_bytes=total,
        memory_used_bytes=total - memory.get("MemAvailable", 0),
        gpus=tuple(gpus),
    )
    return told.model_copy(update=after.traffic.since(before.traffic, seconds))


class MachineSample(NamedTuple):
    at: float
    busy: int
    traffic: Traffic


def _sample() -> MachineSample:
    traffic = read_traffic(read_text("/proc/diskstats") or "", read_text("/proc/net/dev") or "")
    return MachineSample(monotonic(), _busy_ticks(), traffic)


def _busy_ticks() -> int:
    """Add up the time of all processors: user, nice, system, irq, softirq and steal, but not idle or waiting for a
    disk."""
    words = (read_text("/proc/stat") or "cpu 0 0 0 0 0 0 0 0").splitlines()[0].split()[1:9]
    return sum(int(word) for place, word in enumerate(words) if place not in (3, 4))


@functools.cache
def cpu_product() -> str:
    """Return the processor's own name; empty where it has none."""
    for line in (read_text("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "model name":
            return value.strip()
    return ""
