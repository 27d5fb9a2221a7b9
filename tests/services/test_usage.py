"""What is counted where the engine schedules, from the first word of a run to its end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.domain.model import now
from tests.services.scheduling import ANN, Kept, ended, running, submit

ARRAY = "name: sweep\nresources: {cpus: 2}\narray: {count: 4, parallelism: 2}\nrun: sleep 0.5\n"


async def test_of_an_array_each_index_counts_while_it_runs(place):
    async with running(place, Kept()) as parts:
        done = await ended(parts, (await submit(parts, ARRAY)).id)
        report = await parts.usage.report(ANN, now() - timedelta(hours=1))
    seconds = sum((unit.ended_at - unit.started_at).total_seconds() for unit in done.units)
    assert seconds >= 2
    [row] = report.items
    assert (row.name, row.workloads) == ("ann/ann", 1)
    assert row.cpu_hours == pytest.approx(2 * seconds / 3600, abs=0.0001)


async def test_what_is_found_without_its_records_is_counted_from_when_it_began(place):
    kept = Kept()
    async with running(place, kept) as parts:
        made = await submit(parts, "name: train\nresources: {cpus: 2}\nrun: sleep 1\n")
        done = await ended(parts, made.id)
    async with running(place, kept, "fresh.db") as parts:
        again = await ended(parts, made.id)
        report = await parts.usage.report(ANN, now() - timedelta(hours=1))
    assert again.started_at == done.started_at
    [row] = report.items
    assert row.workloads == 1
    ran = (again.ended_at - again.started_at).total_seconds()
    assert 2 * 1 / 3600 - 0.0001 <= row.cpu_hours <= 2 * ran / 3600 + 0.0001
