"""Several nodes start together or give their places back; a node that is lost takes its part of a run along."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.engines.base import Presence, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.nodes.inventory import Inventory
from penstock.engines.kubernetes.state.jobs import read_placement, write_placement
from penstock.engines.kubernetes.waiting import holds
from penstock.settings import Settings
from tests.engines.kubernetes.observed import Observed, observed
from tests.engines.kubernetes.state.test_endings import RUN, a_job
from tests.engines.kubernetes.test_snapshots import Reader
from tests.engines.launches import a_launch
from tests.rig.cluster import Rig

pytestmark = pytest.mark.timeout(300)

SEAT = "example.com/seat"
LONG = 200.0


@pytest.fixture(scope="module")
def own_namespace(own_rig: Rig) -> str:
    """Four seats, two on each node."""
    own_rig.make_namespace("gang")
    for node in own_rig.node_names:
        seats(own_rig, node, "2")
    return "gang"


@pytest.fixture
async def seen(
    own_rig: Rig, own_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Observed]:
    monkeypatch.setattr(holds, "SHORTEST", 1.0)
    monkeypatch.setattr(holds, "LONGEST", 8.0)
    async with observed(own_rig, own_namespace, tmp_path) as seen:
        yield seen


def seats(rig: Rig, node: str, count: str) -> None:
    amount = {SEAT: count}
    patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    rig.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)


def seated(body: dict[str, Any]) -> None:
    resources = body["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["limits"][SEAT] = resources["requests"][SEAT] = "1"


async def test_a_partial_placement_is_said_and_given_back(seen: Observed) -> None:
    single = await seen.start(a_launch("sleep 600", stop_grace=1), change=seated)
    await seen.running(single)
    run = await seen.start(a_launch("echo started", nodes=4, stop_grace=1), change=seated)
    report = await seen.until(
        run, lambda report: report.reason is Reason.PARTLY_PLACED and SEAT in (report.message or "")
    )
    assert (report.presence, report.state) == (Presence.waiting, State.QUEUED)
    said = report.message or ""
    assert said.startswith("3 of 4 nodes have a place; node ")
    assert f": no node has 1 × {SEAT} free: node-" in said
    assert "; all give theirs back at " in said
    report = await seen.until(run, lambda report: report.reason is Reason.GIVEN_BACK)
    assert "gave it back (1 so far); it tries again when there is room, or at " in (report.message or "")
    await seen.stop(single)
    report = await seen.ended(run, LONG)
    assert {unit.state for unit in report.units} == {State.EXITED}
    assert [await seen.log(run, part) for part in range(4)] == [b"started\n"] * 4


async def test_two_that_have_half_of_their_places_each_do_not_block_each_other(seen: Observed) -> None:
    """Each needs three of the four seats, so whoever has two and waits keeps the other from its third."""
    runs = await asyncio.gather(
        *(seen.start(a_launch("sleep 1; echo through", nodes=3, stop_grace=1), change=seated) for _ in range(2))
    )
    reports = await asyncio.gather(*(seen.ended(run, LONG) for run in runs))
    assert {unit.state for report in reports for unit in report.units} == {State.EXITED}


async def test_those_for_which_there_is_never_room_give_their_places_back_for_good(seen: Observed) -> None:
    run = await seen.start(a_launch("echo started", nodes=5, stop_grace=1), change=seated)
    report = await seen.until(run, lambda report: report.reason is Reason.GIVEN_BACK)
    said = "it can never start on the nodes there are: it asks for 5 nodes with 0.02 CPUs, 1 × example.com/seat each"
    assert said in (report.message or "")
    for _ in range(2):  # one after the other has all the seats
        other = await seen.start(a_launch("echo through", nodes=4, stop_grace=1), change=seated)
        assert {unit.state for unit in (await seen.ended(other)).units} == {State.EXITED}
    placement = read_placement(seen.cluster.jobs_of(run)[0])
    assert placement
    assert placement.tries == 1
    assert seen.cluster.pods_of(run) == []


async def test_it_starts_as_soon_as_there_is_room_for_all_of_it(
    own_rig: Rig, own_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own next try would be far away."""
    monkeypatch.setattr(holds, "SHORTEST", 3600.0)
    monkeypatch.setattr(holds, "LONGEST", 3600.0)
    async with observed(own_rig, own_namespace, tmp_path) as seen:
        single = await seen.start(a_launch("sleep 600", stop_grace=1), change=seated)
        await seen.running(single)
        run = await seen.start(a_launch("echo started", nodes=4, stop_grace=1), change=seated)
        await seen.until(run, lambda report: report.reason is Reason.GIVEN_BACK)
        await seen.stop(single)
        assert {unit.state for unit in (await seen.ended(run)).units} == {State.EXITED}


async def test_the_next_server_goes_on_with_what_was_given_back(
    own_rig: Rig, own_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "SHORTEST", 3.0)
    monkeypatch.setattr(holds, "LONGEST", 3.0)
    async with observed(own_rig, own_namespace, tmp_path) as seen:
        run = await seen.start(a_launch("echo through", nodes=5, stop_grace=1), change=seated)
        await seen.until(run, lambda report: report.reason is Reason.GIVEN_BACK)
    seats(own_rig, "node-1", "3")
    try:
        async with observed(own_rig, own_namespace, tmp_path) as seen:
            report = await seen.ended(run, LONG)
            assert {unit.state for unit in report.units} == {State.EXITED}
            placement = read_placement(seen.cluster.jobs_of(run)[0])
            assert placement
            assert placement.tries >= 1
    finally:
        seats(own_rig, "node-1", "2")


async def test_a_stop_while_places_were_given_back_ends_it(seen: Observed) -> None:
    run = await seen.start(a_launch("echo started", nodes=5, stop_grace=1), change=seated)
    await seen.until(run, lambda report: report.reason is Reason.GIVEN_BACK)
    await seen.stop(run)
    report = await seen.ended(run)
    assert {(unit.state, unit.reason) for unit in report.units} == {(State.STOPPED, Reason.STOPPED_BY_USER)}


async def test_a_node_that_is_lost_ends_the_run_and_is_the_reason(seen: Observed) -> None:
    run = await _spread(seen)
    lost = next(part for part in (0, 1) if seen.pod(run, part).spec.node_name == "node-2")
    seen.rig.cut("node-2")
    try:
        await seen.until(run, lambda report: any("does not answer" in (unit.message or "") for unit in report.units))
        report = await seen.ended(run, LONG)
    finally:
        seen.rig.mend("node-2")
    unit, other = report.units[lost], report.units[1 - lost]
    assert (unit.state, unit.reason, unit.message) == (State.CRASHED, Reason.NODE_LOST, "Its node node-2 was lost.")
    assert other.reason is Reason.ANOTHER_NODE_ENDED
    assert other.message == f"Node {lost} was lost with node-2; the others were stopped."
    log = await seen.log(run, lost)
    assert log == b"up\n[penstock] its node node-2 was lost before its last output could be read\n"


async def _spread(seen: Observed) -> Run:
    """One on each node."""

    def change(body: dict[str, Any]) -> None:
        selector = {"matchLabels": {"task-id": body["metadata"]["labels"]["task-id"]}}
        term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        body["spec"]["template"]["spec"]["affinity"] = apart

    run = await seen.start(a_launch("echo up; sleep 600", nodes=2, stop_grace=1), change=change)
    for part in (0, 1):
        await seen.printed(run, b"up\n", part)
    return run


async def test_a_run_that_ended_while_it_was_held_is_forgotten(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    job = a_job(2, annotations={names.PLACEMENT: write_placement(1, now())}, suspend=True)
    nobody: Any = None
    gang = holds.Gang(nobody, reader.cluster, Inventory(reader.cluster), Settings(data_dir=tmp_path))
    reader.cluster.jobs._put(job)
    gang.held.add(RUN)
    assert gang.waiting() == {RUN}
    reader.cluster.jobs._drop((job.namespace, job.name))
    assert gang.waiting() == set()
    await reader.collector.close()
