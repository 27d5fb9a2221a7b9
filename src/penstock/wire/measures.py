"""Answers about what is used, now and over time. What cannot be measured is None, never 0."""

from __future__ import annotations

from typing import Any

from penstock.domain.model import Model, Time
from penstock.domain.nodes import GpuProcess
from penstock.wire.pages import Page


class GpuMeasure(Model):
    uuid: str
    product: str = ""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization: int | None = None
    """Percent of the time in which it computed anything at all."""
    processes: tuple[GpuProcess, ...] | None = None
    """Those that compute on it; None where they cannot be seen."""


class ProcessMeasure(Model):
    pid: int
    user: str
    cpu_percent: float
    memory_bytes: int
    command: str


class Measure(Model):
    """What one node of a workload, or one index of an array, uses now."""

    at: Time
    cpu_percent: float
    """100 is one CPU."""
    memory_bytes: int
    memory_limit_bytes: int | None = None
    gpus: tuple[GpuMeasure, ...] = ()
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    """Since its processes began."""
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    """Over its own network; None where it shares that of its machine."""
    processes: tuple[ProcessMeasure, ...] = ()
    message: str | None = None
    """What could not be seen, and why."""


class MeasureView(Measure):
    id: str
    name: str
    part: int
    """The node, or the index of an array."""


class NodeMeasure(Model):
    """What a machine does now, all who use it together."""

    name: str
    at: Time
    cpu_product: str = ""
    cpus: str
    cpu_percent: float | None = None
    """100 is one CPU."""
    load: tuple[float, float, float] | None = None
    """Programs that wanted to run, over the last minute, five and fifteen."""
    memory_bytes: int
    memory_used_bytes: int | None = None
    gpus: tuple[GpuMeasure, ...] = ()
    disk_read_per_second: int | None = None
    disk_written_per_second: int | None = None
    """Bytes, of all its disks."""
    received_per_second: int | None = None
    sent_per_second: int | None = None
    """Bytes, over networks that lead out of it."""
    message: str | None = None


class NodeMeasurePage(Page):
    items: tuple[NodeMeasure, ...]


class Inspection(Model):
    """What the engine knows of a workload; values that look secret are `***`."""

    id: str
    name: str
    attempt: int
    engine: str
    found: dict[str, Any]


class UsageRow(Model):
    """Of one user in one group; or of one of either, in all of the others."""

    name: str
    """`group/user`, or the one of the two it is of."""
    group: str | None
    user: str | None
    workloads: int
    gpu_hours: float
    """For how long GPUs were theirs, whatever they did."""
    gpu_hours_measured: float
    """The part of it in which it was seen what they do."""
    gpu_hours_used: float | None
    """The part of that in which they worked; None: nobody could see it."""
    cpu_hours: float
    """Of what was asked for, whatever it did."""
    peak_memory_bytes: int | None
    """The most that one node of a workload used; None: nobody could see it, or none has ended yet."""


class UsageReport(Model):
    since: Time
    until: Time
    items: tuple[UsageRow, ...]
    """Who had most GPUs first, then who had most CPUs."""
