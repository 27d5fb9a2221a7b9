"""Commands that wait outlive the server: they wait for it, and go on where they were."""

from __future__ import annotations

import json
import os
import select
import signal

import pytest

AWAY = "The server went away; waiting for it (the job goes on).\n"
COUNT = "i=0; while true; do echo $i; i=$((i+1)); sleep 0.05; done"


@pytest.fixture(params=["stop", "kill"])
def lose(alone, request):
    """Makes the server go away, in one of the two ways."""

    def lose() -> None:
        pid = json.loads(alone("server", "status", "-o", "json").out)["pid"]
        if request.param == "stop":
            assert alone("server", "stop").code == 0
            return
        process = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([process], [], [], 60)
        os.close(process)

    return lose


def running(alone, *words: str) -> dict:
    return json.loads(alone("run", "-o", "json", *words).out)


def test_waiting_goes_on_with_the_next_server(alone, lose):
    over = running(alone, "--", "true")
    job = running(alone, "--", "sleep", "1000")
    waiting = alone.started("jobs", "wait", over["id"], job["id"])
    assert waiting.stderr.readline().startswith(f"Task {over['id']} (")
    lose()
    assert waiting.stderr.readline() == AWAY
    assert alone("server", "start").code == 0
    assert alone("jobs", "stop", job["id"]).code == 0
    _, err = waiting.communicate()
    assert waiting.returncode == 1
    assert err.startswith(f"Task {job['id']} (")
    assert AWAY not in err


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_followed_log_goes_on_without_a_gap_and_without_repeating(alone, lose, nodes):
    following = alone.started("run", "--name", "counting", "--nodes", nodes, "--", "bash", "-c", COUNT)
    seen: dict[str, list[int]] = {}

    def read_to(number: int) -> None:
        while len(seen) < int(nodes) or any(numbers[-1] < number for numbers in seen.values()):
            node, _, text = following.stdout.readline().rpartition(" | ")
            seen.setdefault(node, []).append(int(text))

    read_to(3)
    lose()
    assert AWAY in iter(following.stderr.readline, "")
    assert alone("server", "start").code == 0
    read_to(max(numbers[-1] for numbers in seen.values()) + 40)
    assert alone("jobs", "stop", "counting").code == 0
    for line in following.stdout:
        node, _, text = line.rpartition(" | ")
        seen[node].append(int(text))
    assert seen == {node: list(range(len(numbers))) for node, numbers in seen.items()}
    assert "(counting) stopped" in following.stderr.read()
    following.communicate()
    assert following.returncode == 1


def test_following_a_part_of_a_log_ends_and_says_how_to_read_on(alone, lose):
    job = running(alone, "--", "bash", "-c", "echo ready; sleep 1000")
    following = alone.started("jobs", "logs", job["id"], "--tail", "5")
    assert following.stdout.readline() == "ready\n"
    lose()
    alone("server", "start")
    _, err = following.communicate()
    assert following.returncode == 5
    assert "Error: The server went away, so following the log ends here; the job goes on.\n" in err
    assert f"Hint: read on with: penstock jobs logs {job['id']} --since 20" in err


def test_a_watched_list_goes_on_with_the_next_server(alone, lose):
    alone("server", "start")
    watching = alone.started("volumes", "list", "--watch")
    assert watching.stdout.readline().startswith("Volume ID ")
    lose()
    assert watching.stderr.readline() == AWAY
    made = alone("volumes", "create", "later", "1Gi", "-o", "name").out.strip()
    assert watching.stdout.readline().startswith(f"{made}   later ")
    watching.send_signal(signal.SIGINT)
    assert watching.communicate() == ("", "")
    assert watching.returncode == 0
