"""A clock that jumps: nothing is ended early, nothing hangs, and the order of things stays."""

import os
from pathlib import Path

import pytest

from tests.running import RunningServer, start_server

DAY = 86400


@pytest.fixture
def clock(place: Path) -> Path:
    """The file the server reads the offset of its clock from, in seconds."""
    file = place / "clock"
    file.write_text("0")
    return file


@pytest.fixture
def server(place: Path, clock: Path, compiled_fake):
    running = start_server(
        place, environ={"LD_PRELOAD": str(compiled_fake("clock.c", "libclock.so")), "FAKE_CLOCK": str(clock)}
    )
    yield running
    running.end()


def jump(clock: Path, seconds: int) -> None:
    new = clock.with_suffix(".new")
    new.write_text(str(seconds))
    os.replace(new, clock)  # noqa: PTH105


def year(server: RunningServer, ref: str) -> int:
    return int(server.request("GET", f"/v1/workloads/{ref}")[1]["created_at"][:4])


def test_a_jump_ends_no_job_and_loses_no_order(server, clock):
    running = server.submit("name: through\nmax_duration: 1h\nrun: sleep 2; echo survived\n")
    jump(clock, 400 * DAY)
    later = server.submit("name: later\nrun: 'true'\n")
    ended = server.ended(later["id"])
    assert ended["status"] == "completed", ended["message"]
    jump(clock, -400 * DAY)
    earlier = server.submit("name: earlier\nrun: 'true'\n")
    ended = server.ended(earlier["id"])
    assert ended["status"] == "completed", ended["message"]
    assert year(server, later["id"]) > year(server, earlier["id"])
    done = server.ended(running["id"])
    assert done["status"] == "completed"
    assert server.request("GET", f"/v1/workloads/{running['id']}/logs")[1] == "survived\n"
    _, page = server.request("GET", "/v1/workloads")
    assert [item["name"] for item in page["items"]] == ["earlier", "later", "through"]


def test_a_limit_is_measured_in_time_that_passes(server, clock):
    limited = server.submit("max_duration: 2s\nrun: sleep 60\n")
    jump(clock, -30 * DAY)
    done = server.ended(limited["id"])
    assert (done["status"], done["reason"]) == ("failed", "TIME_LIMIT"), done["message"]
