"""A clock that jumps: nothing is ended early, nothing hangs, and the order of things stays."""

import os
from pathlib import Path

import pytest

from tests.running import RunningServer, start_server

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


@pytest.fixture
def clock(place: Path) -> Path:
    """The file the server reads its offset from."""
    if LIBRARY is None:
        pytest.skip("libfaketime is missing: apt-get install -y faketime")
    file = place / "clock"
    file.write_text("+0")
    return file


@pytest.fixture
def server(place: Path, clock: Path):
    environ = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    running = start_server(place, environ=environ)
    running.ended(running.submit("run: 'true'\n")["id"])
    yield running
    running.end()


def jump(clock: Path, offset: str) -> None:
    new = clock.with_suffix(".new")
    new.write_text(offset)
    os.replace(new, clock)  # noqa: PTH105


def year(server: RunningServer, ref: str) -> int:
    return int(server.request("GET", f"/v1/workloads/{ref}")[1]["created_at"][:4])


def test_a_jump_ends_no_job_and_loses_no_order(server, clock):
    running = server.submit("name: through\nmax_duration: 1h\nrun: sleep 2; echo survived\n")
    jump(clock, "+400d")
    later = server.submit("name: later\nrun: 'true'\n")
    ended = server.ended(later["id"])
    assert ended["status"] == "completed", ended["message"]
    jump(clock, "-400d")
    earlier = server.submit("name: earlier\nrun: 'true'\n")
    ended = server.ended(earlier["id"])
    assert ended["status"] == "completed", ended["message"]
    assert year(server, later["id"]) > year(server, earlier["id"])
    done = server.ended(running["id"])
    assert done["status"] == "completed"
    assert server.request("GET", f"/v1/workloads/{running['id']}/logs")[1] == "survived\n"
    _, page = server.request("GET", "/v1/workloads")
    assert [item["name"] for item in page["items"]][:3] == ["earlier", "later", "through"]


def test_a_limit_is_measured_in_time_that_passes(server, clock):
    limited = server.submit("max_duration: 2s\nrun: sleep 60\n")
    jump(clock, "-30d")
    done = server.ended(limited["id"])
    assert (done["status"], done["reason"]) == ("failed", "TIME_LIMIT"), done["message"]
