"""What `describe` shows of a run on this machine, in order."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from penstock.domain.workloads import Scratch
from penstock.engines.base import Event, Run
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.events import SHOWN, run_events
from penstock.settings import Settings
from tests.engines.launches import a_launch, an_array, ended, outcome, printed, run_of

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


@pytest.fixture
def settings(place: Path) -> Settings:
    return Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", disk_scan="1s")


def told(events: list[Event]) -> list[tuple[str, str, str]]:
    assert [event.at for event in events] == sorted(event.at for event in events)
    return [(event.about, event.reason, event.message) for event in events]


async def test_a_run_that_fails(engine: LocalEngine) -> None:
    launch = a_launch("exit 3")
    await outcome(engine, launch)
    events = await engine.events(run_of(launch))
    assert told(events) == [
        ("job", "Began", "Its supervisor began."),
        ("job", "Started", "It started."),
        ("job", "Crashed", "run ended with code 3."),
    ]
    assert [event.kind for event in events] == ["Normal", "Normal", "Warning"]


async def test_nodes_that_are_stopped(engine: LocalEngine) -> None:
    launch = a_launch("echo up; sleep 600", nodes=2)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    for _ in range(3):
        await engine.stop(run_of(launch), 90)
    await ended(engine, run_of(launch))
    _, *started, asked, first, second = told(await engine.events(run_of(launch)))
    assert started == [("node 0", "Started", "It started."), ("node 1", "Started", "It started.")]
    assert asked == ("job", "StopAsked", "A stop was asked for: TERM, and KILL after 1m30s.")
    assert sorted([first, second]) == [(f"node {rank}", "Stopped", "It was stopped.") for rank in (0, 1)]


async def test_limits_that_are_hit(engine: LocalEngine) -> None:
    launch = a_launch("sleep 600", max_duration=1)
    await outcome(engine, launch)
    assert ("job", "TimeLimit", "It ran longer than max_duration (1s).") in told(await engine.events(run_of(launch)))
    full = a_launch(
        "head -c 9M /dev/zero >/scratch/x; sleep 600", scratch=(Scratch(path="/scratch", size_bytes=4 << 20),)
    )
    await outcome(engine, full)
    said = "/scratch holds 9Mi, more than its size 4Mi."
    assert [event[1:] for event in told(await engine.events(run_of(full)))[2:]] == [
        ("DiskLimit", said),
        ("Crashed", said),
    ]


async def test_an_array(engine: LocalEngine) -> None:
    launch = an_array("[ $JOB_COMPLETION_INDEX = 0 ] || { echo up; sleep 600; }", 4, 1)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up", 1)
    await engine.stop(run_of(launch), 0)
    await ended(engine, run_of(launch))
    assert told(await engine.events(run_of(launch))) == [
        ("job", "Began", "Its supervisor began."),
        ("index 0", "Started", "It started."),
        ("index 0", "Exited", "It ended with code 0."),
        ("index 1", "Started", "It started."),
        ("job", "StopAsked", "A stop was asked for: TERM, and KILL after 0s."),
        ("index 1", "Stopped", "It was stopped."),
        ("job", "Stopped", "2 never started."),
    ]


async def test_of_a_run_nobody_started_nothing_is_told(engine: LocalEngine) -> None:
    assert await engine.events(Run("nosuchid")) == []


async def test_stopped_before_it_began(engine: LocalEngine) -> None:
    launch = a_launch("true")
    await engine.stop(run_of(launch), 5)
    await outcome(engine, launch)
    assert told(await engine.events(run_of(launch))) == [("job", "Stopped", "It never started.")]


def test_of_very_many_the_newest_are_told_and_the_others_counted(place: Path) -> None:
    (place / "began").write_text(json.dumps({"at": 1.0, "array": 5000, "nodes": 0}))
    lines = [{"rank": 0, "index": index, "event": "go", "at": 2.0 + index} for index in range(5000)]
    (place / "events").write_text("".join(json.dumps(line) + "\n" for line in lines))
    events = run_events(place)
    assert len(events) == SHOWN + 2
    assert told(events)[1] == ("job", "LeftOut", "4,000 earlier events are not shown.")
    assert told(events)[-1][0] == "index 4999"
