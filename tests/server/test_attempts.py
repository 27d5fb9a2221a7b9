"""Attempts as a user meets them: retries, restarts, a retry by hand, arrays; and that kill -9 changes none of it."""

import sqlite3
from itertools import pairwise

from tests.running import RunningServer, start_server


def until(server: RunningServer, ref: str, holds) -> dict:
    """The workload once it is so, looked at after each change of anything."""
    while True:
        _, page = server.request("GET", "/v1/workloads?limit=1")
        workload = server.request("GET", f"/v1/workloads/{ref}")[1]
        if holds(workload):
            return workload
        server.request("GET", f"/v1/workloads?limit=1&wait=5&seen={page['version']}")


def states(workload) -> list[str]:
    return [change["state"] for change in workload["history"]]


def volume(server: RunningServer, name: str) -> None:
    server.request("POST", "/v1/volumes", {"name": name, "size": "1Gi", "access_modes": ["ReadWriteMany"]})


def test_a_failing_program_is_tried_again_and_each_attempt_is_kept(module_server):
    made = module_server.submit("retries: 3\nrun: '[ $PENSTOCK_ATTEMPT -gt 1 ] || exit 3; echo second'\n")
    done = module_server.ended(made["id"])
    assert (done["status"], done["attempt"], done["exit_code"]) == ("completed", 2, 0)
    assert states(done)[-6:] == ["CRASHED", "QUEUED", "ASSIGNED", "LAUNCHING", "RUNNING", "EXITED"]
    retry = next(change for change in done["history"] if change["reason"] == "RETRY")
    assert retry["message"] == "attempt 2 of 4: run ended with code 3."
    assert [(unit["attempt"], unit["state"]) for unit in done["units"]] == [(2, "EXITED")]
    assert [(unit["attempt"], unit["exit_code"]) for unit in done["earlier"]] == [(1, 3)]


def test_after_the_last_retry_it_has_failed(module_server):
    done = module_server.ended(module_server.submit("retries: 1\nrun: exit 7\n")["id"])
    assert (done["status"], done["reason"], done["attempt"], done["exit_code"]) == ("failed", "PROGRAM_FAILED", 2, 7)


def test_a_setup_that_fails_and_a_limit_that_is_passed_are_tried_again_too(module_server):
    setup = module_server.submit("retries: 1\nsetup: exit 4\nrun: 'true'\n")
    late = module_server.submit("retries: 1\nmax_duration: 1s\nrun: sleep 60\n")
    for made, reason in ((setup, "SETUP_FAILED"), (late, "TIME_LIMIT")):
        done = module_server.ended(made["id"])
        assert (done["attempt"], done["reason"]) == (2, reason)


def test_while_it_waits_for_the_next_attempt_a_stop_wins(module_server):
    made = module_server.submit("retries: unlimited\nrun: exit 1\n")
    until(module_server, made["id"], lambda job: job["reason"] == "RETRY")
    status, _ = module_server.request("POST", f"/v1/workloads/{made['id']}/stop")
    assert status == 200
    done = module_server.ended(made["id"])
    assert done["status"] == "stopped"


def test_what_restarts_always_starts_again_after_a_success_until_it_is_stopped(module_server):
    made = module_server.submit("restart: always\nrun: 'true'\n")
    again = until(module_server, made["id"], lambda job: job["attempt"] >= 3)
    assert "it finished and is to start again" in str(again["history"])
    module_server.request("POST", f"/v1/workloads/{made['id']}/stop")
    assert module_server.ended(made["id"])["status"] in ("stopped", "completed")


def test_one_that_failed_is_given_another_attempt_by_hand(module_server):
    volume(module_server, "by-hand")
    text = "volumes: {/d: by-hand}\nrun: '[ -e /d/ok ] || { touch /d/ok; exit 3; }'\n"
    made = module_server.submit(text)
    assert module_server.ended(made["id"])["status"] == "failed"
    status, again = module_server.request("POST", f"/v1/workloads/{made['id']}/retry", {})
    assert status == 200, again
    assert (again["attempt"], again["ended_at"], again["exit_code"]) == (2, None, None)
    done = module_server.ended(made["id"])
    assert (done["status"], done["attempt"]) == ("completed", 2)
    asked = [change["message"] for change in done["history"] if change["reason"] == "RETRY"]
    assert asked == [f"attempt 2: asked for by {made['user']}"]


def test_the_same_key_makes_one_further_attempt(module_server):
    made = module_server.ended(module_server.submit("run: exit 3\n")["id"])
    key = {"Idempotency-Key": f"again-{made['id']}"}
    for _ in range(2):
        status, again = module_server.request("POST", f"/v1/workloads/{made['id']}/retry", {}, key)
        assert status == 200
        module_server.ended(made["id"])
    assert again["attempt"] == 2


def test_there_is_no_further_attempt_of_what_completed_runs_or_misses_a_volume(module_server):
    done = module_server.ended(module_server.submit("run: 'true'\n")["id"])
    status, body = module_server.request("POST", f"/v1/workloads/{done['id']}/retry", {})
    assert (status, "nothing to try again" in body["detail"]) == (409, True)
    running = module_server.submit("run: sleep 60\n")
    status, body = module_server.request("POST", f"/v1/workloads/{running['id']}/retry", {})
    assert (status, body["hint"]) == (409, f"penstock jobs stop {running['id']}")
    module_server.request("POST", f"/v1/workloads/{running['id']}/stop")
    volume(module_server, "short-lived")
    failed = module_server.ended(module_server.submit("volumes: {/d: short-lived}\nrun: exit 1\n")["id"])
    module_server.request("DELETE", "/v1/volumes/short-lived")
    status, body = module_server.request("POST", f"/v1/workloads/{failed['id']}/retry", {})
    assert (status, "volume short-lived" in body["detail"]) == (409, True)
    status, body = module_server.request("POST", f"/v1/workloads/{failed['id']}/retry", {"indexes": [0]})
    assert status in (409, 422)
    assert module_server.request("POST", "/v1/workloads/nosuchid/retry", {})[0] == 404


class TestArray:
    """Of an array: progress, states by index, and only what failed runs again."""

    def test_each_index_runs_once_and_the_list_shows_how_far_it_is(self, module_server):
        made = module_server.submit("name: sweep\narray: 4\nresources: {cpus: 0.1}\nrun: echo $JOB_COMPLETION_INDEX\n")
        assert made["array"] == {"count": 4, "completed": 0, "failed": 0, "running": 0}
        done = module_server.ended(made["id"])
        assert (done["status"], done["array"]["completed"]) == ("completed", 4)
        assert [(unit["index"], unit["state"]) for unit in done["units"]] == [(n, "EXITED") for n in range(4)]
        [listed] = module_server.request("GET", "/v1/workloads?name=sweep")[1]["items"]
        assert listed["array"] == {"count": 4, "completed": 4, "failed": 0, "running": 0}

    def test_while_it_runs_what_is_done_is_seen(self, module_server):
        volume(module_server, "gate")
        text = "array: 2\nresources: {cpus: 0.1}\nvolumes: {/d: gate}\n"
        text += "run: '[ $JOB_COMPLETION_INDEX = 0 ] || until [ -e /d/open ]; do sleep 0.1; done'\n"
        made = module_server.submit(text)
        seen = until(module_server, made["id"], lambda job: job["array"]["completed"] and job["array"]["running"])
        assert (seen["status"], seen["array"]["completed"], seen["array"]["running"]) == ("running", 1, 1)
        opens = module_server.submit("volumes: {/d: gate}\nresources: {cpus: 0.1}\nrun: touch /d/open\n")
        assert module_server.ended(opens["id"])["status"] == "completed"
        assert module_server.ended(made["id"])["array"]["completed"] == 2

    def test_only_the_failed_indexes_are_tried_again_and_the_newest_attempt_counts(self, module_server):
        text = "array: 4\nretries: 1\nresources: {cpus: 0.1}\n"
        text += "run: '[ $PENSTOCK_ATTEMPT = 2 ] || [ $JOB_COMPLETION_INDEX != 2 ] || exit 5'\n"
        done = module_server.ended(module_server.submit(text)["id"])
        assert (done["status"], done["attempt"]) == ("completed", 2)
        assert [(unit["index"], unit["attempt"]) for unit in done["units"]] == [(0, 1), (1, 1), (2, 2), (3, 1)]
        assert [(unit["index"], unit["exit_code"]) for unit in done["earlier"]] == [(2, 5)]
        assert "1 of 4 indexes failed; first: index 2: run ended with code 5." in str(done["history"])

    def test_by_hand_only_what_failed_or_the_indexes_that_are_named(self, module_server):
        volume(module_server, "fix")
        text = "array: 3\nresources: {cpus: 0.1}\nvolumes: {/d: fix}\n"
        text += "run: '[ $JOB_COMPLETION_INDEX = 0 ] || [ -e /d/ok ] || exit 1'\n"
        made = module_server.submit(text)
        failed = module_server.ended(made["id"])
        assert failed["message"] == "2 of 3 indexes failed; first: index 1: run ended with code 1."
        assert failed["array"] == {"count": 3, "completed": 1, "failed": 2, "running": 0}
        retry = f"/v1/workloads/{made['id']}/retry"
        status, body = module_server.request("POST", retry, {"indexes": [0]})
        assert (status, body["problems"][0]["hint"]) == (422, "those that did not complete: 1, 2")
        assert module_server.request("POST", retry, {"indexes": [3]})[0] == 422
        fixed = module_server.submit("volumes: {/d: fix}\nresources: {cpus: 0.1}\nrun: touch /d/ok\n")
        module_server.ended(fixed["id"])
        assert module_server.request("POST", retry, {"indexes": [2]})[0] == 200
        partly = module_server.ended(made["id"])
        assert (partly["status"], partly["array"]["failed"]) == ("failed", 1)
        assert module_server.request("POST", retry, {})[0] == 200
        assert module_server.ended(made["id"])["status"] == "completed"

    def test_one_that_is_stopped_says_what_was_done_by_then(self, module_server):
        text = "array: 2\nresources: {cpus: 0.1}\nrun: '[ $JOB_COMPLETION_INDEX = 0 ] || sleep 60'\n"
        made = module_server.submit(text)
        until(module_server, made["id"], lambda job: job["array"]["completed"] == 1)
        module_server.request("POST", f"/v1/workloads/{made['id']}/stop")
        done = module_server.ended(made["id"])
        assert (done["status"], done["message"]) == ("stopped", "1 of 2 indexes completed")

    def test_no_more_run_at_once_than_the_machine_has_room_for(self, place):
        server = start_server(place, cpus="2")
        try:
            text = "array: 6\nresources: {cpus: 1}\nvolumes: {/d: rooms}\nrun: |\n  mkdir /d/$JOB_COMPLETION_INDEX\n"
            text += "  ls /d | wc -l\n  sleep 0.3\n  rmdir /d/$JOB_COMPLETION_INDEX\n"
            volume(server, "rooms")
            made = server.submit(text)
            assert server.ended(made["id"])["status"] == "completed"
            log = server.request("GET", f"/v1/workloads/{made['id']}/logs")[1]
            assert {int(line.rpartition(" ")[2]) for line in log.splitlines()} <= {1, 2}
        finally:
            server.end()


def test_killed_at_any_time_each_attempt_runs_once_and_none_is_forgotten(place):
    """The server is killed again and again while a job fails again and again."""
    server = start_server(place)
    volume(server, "tally")
    made = server.submit(
        "volumes: {/d: tally}\nretries: 3\nrun: 'echo $PENSTOCK_ATTEMPT >> /d/runs; [ $PENSTOCK_ATTEMPT = 4 ]'\n"
    )
    for attempt in (2, 3, 4):
        until(server, made["id"], lambda job, attempt=attempt: job["attempt"] >= attempt or job["ended_at"])
        server.kill()
        server = start_server(place)
    try:
        done = server.ended(made["id"])
        assert (done["status"], done["attempt"]) == ("completed", 4)
        runs = next((place / "data" / "volumes").glob("tally-*")) / "runs"
        assert runs.read_text().split() == ["1", "2", "3", "4"]
    finally:
        server.end()


def test_an_end_and_the_attempt_after_it_are_written_together(server):
    """At no moment does the record say that it has ended."""
    made = server.submit("retries: 2\nrun: exit 1\n")
    server.ended(made["id"])
    database = sqlite3.connect(server.place / "data" / "penstock.db")
    query = "SELECT attempt, state, at FROM history WHERE workload_id=? ORDER BY seq"
    rows = database.execute(query, (made["id"],)).fetchall()
    database.close()
    for (attempt, state, at), (next_attempt, next_state, next_at) in pairwise(rows):
        if state == "CRASHED":
            assert (next_attempt, next_state) == (attempt + 1, "QUEUED")
            assert next_at - at < 1000


def test_what_has_a_ttl_is_deleted_that_long_after_its_end_and_its_volume_stays(module_server):
    volume(module_server, "outlives")
    made = module_server.submit("ttl: 1s\nvolumes: {/d: outlives}\nrun: touch /d/kept\n")
    while module_server.request("GET", f"/v1/workloads/{made['id']}")[0] == 200:
        _, page = module_server.request("GET", "/v1/workloads?limit=1")
        module_server.request("GET", f"/v1/workloads?limit=1&wait=2&seen={page['version']}")
    kept = next((module_server.place / "data" / "volumes").glob("outlives-*")) / "kept"
    assert kept.exists()
