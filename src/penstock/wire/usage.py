"""Answers about usage over time."""

from __future__ import annotations

from penstock.domain.model import Model, Time


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
