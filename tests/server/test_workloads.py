"""Workloads as a user meets them over HTTP: submit, queue, states, stop, delete, logs."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.running import RunningServer, start_server


def log(server: RunningServer, ref: str, query: str = "") -> str:
    status, text = server.request("GET", f"/v1/workloads/{ref}/logs{query}")
    assert status == 200, text
    return text


def submit(server: RunningServer, text: str, **more):
    return server.request("POST", "/v1/workloads", {"text": text} | more)


def states(workload) -> list[str]:
    return [change["state"] for change in workload["history"]]


def test_a_job_runs_and_its_history_tells_how(module_server):
    made = module_server.submit("name: hello\nrun: echo hello\n")
    done = module_server.ended(made["id"])
    assert (done["status"], done["state"], done["exit_code"]) == ("completed", "EXITED", 0)
    assert states(done) == ["INSERTED", "ASSIGNED", "LAUNCHING", "RUNNING", "EXITED"]
    assert all(change["at"] and change["reason"] for change in done["history"])
    assert log(module_server, made["id"]) == "hello\n"


def test_what_happened_to_a_job_is_told_in_order(module_server):
    made = module_server.submit("run: exit 3\n")
    module_server.ended(made["id"])
    _, events = module_server.request("GET", f"/v1/workloads/{made['id']}/events")
    said = [event["message"] for event in events["items"]]
    assert said.index("INSERTED") < said.index("RUNNING") < said.index("CRASHED: run ended with code 3.")
    last = events["items"][-1]
    assert (last["kind"], last["reason"], last["about"]) == ("Warning", "PROGRAM_FAILED", "job")
    times = [event["at"] for event in events["items"]]
    assert times == sorted(times)
    assert module_server.request("GET", "/v1/workloads/nosuchid/events")[0] == 404


def test_a_failing_job_says_with_what(module_server):
    done = module_server.ended(module_server.submit("run: exit 7\n")["id"])
    assert (done["status"], done["reason"], done["exit_code"]) == ("failed", "PROGRAM_FAILED", 7)


def test_a_failing_setup_stops_the_job_and_the_state_says_so(module_server):
    made = module_server.submit("setup: |\n  false\n  echo not reached\nrun: echo not reached either\n")
    done = module_server.ended(made["id"])
    assert (done["status"], done["reason"]) == ("failed", "SETUP_FAILED")
    assert "not reached" not in log(module_server, made["id"])


def test_run_keeps_the_ways_of_bash(module_server):
    made = module_server.submit("setup: export GREETING=hi\nrun: |\n  false\n  echo $GREETING, still here\n")
    assert module_server.ended(made["id"])["status"] == "completed"
    assert log(module_server, made["id"]) == "hi, still here\n"


def test_data_outlives_the_job_that_wrote_it(module_server):
    module_server.request("POST", "/v1/volumes", {"name": "kept", "size": "1Gi"})
    first = module_server.submit("volumes: {/data: kept}\nrun: echo 42 > /data/answer\n")
    assert module_server.ended(first["id"])["status"] == "completed"
    second = module_server.submit("volumes: {/elsewhere: kept}\nrun: cat /elsewhere/answer\n")
    assert module_server.ended(second["id"])["status"] == "completed"
    assert log(module_server, second["id"]) == "42\n"


def test_a_read_only_volume_cannot_be_written(module_server):
    asked = {"name": "fixed", "size": "1Gi", "access_modes": ["ReadOnlyMany"]}
    module_server.request("POST", "/v1/volumes", asked)
    made = module_server.submit("num_nodes: 2\nvolumes: {/data: fixed}\nrun: touch /data/x\n")
    assert module_server.ended(made["id"])["status"] == "failed"
    assert "Read-only file system" in log(module_server, made["id"])


def test_several_nodes_share_a_volume_only_if_it_says_so(module_server):
    module_server.request("POST", "/v1/volumes", {"name": "single", "size": "1Gi"})
    status, body = submit(module_server, "num_nodes: 2\nvolumes: {/data: single}\nrun: 'true'\n")
    assert status == 422
    assert "ReadWriteMany" in body["detail"]


def test_a_volume_is_found_by_name_by_id_and_by_its_literal_name(module_server):
    _, volume = module_server.request("POST", "/v1/volumes", {"name": "found", "size": "1Gi"})
    for ref in ("found", volume["id"], volume["object_name"]):
        done = module_server.ended(module_server.submit(f"volumes: {{/data: {ref}}}\nrun: 'true'\n")["id"])
        assert done["volumes"][0]["id"] == volume["id"]
    status, body = submit(module_server, "volumes: {/data: nowhere, /more: neither}\nrun: 'true'\n")
    assert status == 422
    assert [problem["field"] for problem in body["problems"]] == ["volumes./data", "volumes./more"]


def test_each_node_knows_its_rank_and_lines_are_prefixed(module_server):
    made = module_server.submit(
        "num_nodes: 2\nrun: echo $NODE_RANK of $NUM_NODES at $MASTER_ADDR, $SKYPILOT_NODE_RANK, $GPUS_PER_NODE\n"
    )
    assert module_server.ended(made["id"])["status"] == "completed"
    lines = sorted(log(module_server, made["id"]).splitlines())
    assert lines == ["node-0 | 0 of 2 at 127.0.0.1, 0, 0", "node-1 | 1 of 2 at 127.0.0.1, 1, 0"]
    assert log(module_server, made["id"], "?node=1") == "1 of 2 at 127.0.0.1, 1, 0\n"
    assert module_server.request("GET", f"/v1/workloads/{made['id']}/logs?node=2")[0] == 422


def test_one_node_failing_ends_the_others_and_is_the_reason_shown(module_server):
    made = module_server.submit("num_nodes: 2\nrun: '[ $NODE_RANK = 0 ] && sleep 60 || exit 3'\n")
    done = module_server.ended(made["id"])
    assert (done["status"], done["exit_code"]) == ("failed", 3)
    assert done["message"].startswith("node 1: ")
    assert [unit["reason"] for unit in done["units"]] == ["ANOTHER_NODE_ENDED", "PROGRAM_FAILED"]


def test_a_stopped_job_stays_listed_with_its_log(module_server):
    made = module_server.submit("name: stopme\nrun: trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait\n")
    _follow_until(module_server, made["id"], b"up")
    status, _ = module_server.request("POST", "/v1/workloads/stopme/stop")
    assert status == 200
    done = module_server.ended(made["id"])
    assert (done["status"], done["reason"]) == ("stopped", "STOPPED_BY_USER")
    assert "REQUESTED_CANCEL" in states(done)
    assert log(module_server, made["id"]) == "up\nbye\n"
    assert module_server.request("POST", f"/v1/workloads/{made['id']}/stop")[0] == 200


def _follow_until(server: RunningServer, ref: str, wanted: bytes) -> None:
    """Reads the followed log until the text is there."""
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(server.socket))
        connection.sendall(f"GET /v1/workloads/{ref}/logs?follow=true HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        seen = b""
        while wanted not in seen.partition(b"\r\n\r\n")[2]:
            part = connection.recv(4096)
            assert part, seen
            seen += part


def test_over_the_time_limit_it_is_ended_and_says_so(module_server):
    done = module_server.ended(module_server.submit("max_duration: 1s\nrun: sleep 60\n")["id"])
    assert (done["status"], done["reason"]) == ("failed", "TIME_LIMIT")


def test_a_job_is_deleted_only_after_it_ended(module_server):
    made = module_server.submit("run: sleep 60\n")
    status, body = module_server.request("DELETE", f"/v1/workloads/{made['id']}")
    assert status == 409
    assert body["hint"] == f"penstock jobs stop {made['id']}"
    module_server.request("POST", f"/v1/workloads/{made['id']}/stop")
    module_server.ended(made["id"])
    assert module_server.request("DELETE", f"/v1/workloads/{made['id']}")[0] == 200
    assert module_server.request("GET", f"/v1/workloads/{made['id']}")[0] == 404


def test_a_name_several_share_is_the_one_that_is_alive_else_the_newest(module_server):
    ids = [module_server.ended(module_server.submit("name: twin\nrun: 'true'\n")["id"])["id"] for _ in range(2)]
    assert module_server.request("GET", "/v1/workloads/twin")[1]["id"] == ids[-1]
    alive = module_server.submit("name: twin\nrun: sleep 60\n")
    assert module_server.request("GET", "/v1/workloads/twin")[1]["id"] == alive["id"]
    module_server.request("POST", "/v1/workloads/twin/stop")
    module_server.ended(alive["id"])


def test_the_same_key_makes_one_job(module_server):
    key = {"Idempotency-Key": "submit-1"}
    body = {"text": "name: single-run\nrun: 'true'\n"}
    first = module_server.request("POST", "/v1/workloads", body, key)
    again = module_server.request("POST", "/v1/workloads", body, key)
    assert first[0] == again[0] == 201
    assert first[1]["id"] == again[1]["id"]
    _, listed = module_server.request("GET", "/v1/workloads?name=single-run")
    assert len(listed["items"]) == 1


def test_a_dry_run_says_whether_it_is_valid_and_fits_and_makes_nothing(module_server):
    status, found = submit(module_server, "name: dry\nresources: {image_id: 'a:b'}\nrun: 'true'\n", dry_run=True)
    assert status == 200
    assert found["valid"]
    assert found["fits_now"]
    assert "a:b is not used by this engine" in found["notices"][0]
    assert module_server.request("GET", "/v1/workloads?name=dry")[1]["items"] == []


def test_a_relative_workdir_must_be_sent_and_the_answer_says_so(module_server):
    status, body = submit(module_server, "workdir: ./code\nrun: ls\n")
    assert (status, body["code"]) == (428, "files_needed")
    assert body["details"]["files"] == {"workdir": "./code"}


def test_what_is_wrong_beyond_the_text_is_said_at_once_with_its_place(module_server):
    text = "num_nodes: 2\nresources:\n  cpus: 100000\nvolumes:\n  /data: nowhere\nrun: 'true'\n"
    status, body = submit(module_server, text, source="train.yaml")
    assert status == 422
    places = [(problem["where"], problem["field"]) for problem in body["problems"]]
    assert places == [("train.yaml:3:3", "resources.cpus"), ("train.yaml:5:3", "volumes./data")]


def test_a_list_is_filtered_by_the_server(module_server):
    module_server.ended(module_server.submit("name: filtered\nrun: exit 1\n")["id"])
    _, failed = module_server.request("GET", "/v1/workloads?name=filtered&status=failed,stopped")
    assert [item["name"] for item in failed["items"]] == ["filtered"]
    assert module_server.request("GET", "/v1/workloads?name=filtered&status=running")[1]["items"] == []
    assert module_server.request("GET", "/v1/workloads?name=filtered&state=CRASHED")[1]["items"] != []
    status, body = module_server.request("GET", "/v1/workloads?status=sleeping")
    assert status == 422
    assert "running" in body["problems"][0]["hint"]


class TestQueue:
    @pytest.fixture
    def server(self, place):
        running = start_server(place, cpus="2", memory="8Gi")
        yield running
        running.end()

    def test_what_does_not_fit_waits_with_the_reason_and_starts_when_there_is_room(self, server):
        first = server.submit("name: first\nresources: {cpus: 2}\nrun: sleep 60\n")
        second = server.submit("name: second\nresources: {cpus: 1}\nrun: 'true'\n")
        _, waiting = server.request("GET", f"/v1/workloads/{second['id']}")
        assert (waiting["state"], waiting["status"]) == ("QUEUED", "pending")
        assert waiting["message"] == "needs 1 CPU; 0 of 2 are free"
        third = server.submit("name: third\nrun: 'true'\n")
        assert (third["message"], third["ahead"]) == ("needs 0.5 CPUs; 0 of 2 are free", 1)
        server.request("POST", f"/v1/workloads/{first['id']}/stop")
        assert server.ended(second["id"])["status"] == "completed"
        assert server.ended(third["id"])["status"] == "completed"

    def test_what_can_never_fit_is_refused_with_what_there_is(self, server):
        status, body = submit(server, "num_nodes: 2\nresources: {cpus: 2, memory: 16Gi, accelerators: 1}\nrun: x\n")
        assert status == 422
        assert "asks for 4 CPUs (2 nodes together)" in body["detail"]
        assert "has 2" in body["detail"]
        assert "32Gi of memory" in body["detail"]
        assert "no GPU" in body["detail"]

    def test_one_that_waits_is_stopped_at_once(self, server):
        server.submit("resources: {cpus: 2}\nrun: sleep 60\n")
        waiting = server.submit("resources: {cpus: 2}\nrun: 'true'\n")
        _, stopped = server.request("POST", f"/v1/workloads/{waiting['id']}/stop")
        assert stopped["status"] == "stopped"
        assert server.request("GET", f"/v1/workloads/{waiting['id']}/logs?follow=true") == (200, "")

    def test_all_are_stopped_together(self, server):
        ids = {server.submit("resources: {cpus: 1}\nrun: sleep 60\n")["id"] for _ in range(3)}
        _, stopped = server.request("POST", "/v1/workloads/stop")
        assert {item["id"] for item in stopped["items"]} == ids
        assert {server.ended(workload_id)["status"] for workload_id in ids} == {"stopped"}
        assert server.request("POST", "/v1/workloads/stop")[1]["items"] == []

    def test_a_dry_run_tells_what_it_would_wait_for(self, server):
        server.submit("resources: {cpus: 2}\nrun: sleep 60\n")
        _, found = submit(server, "run: 'true'\n", dry_run=True)
        assert not found["fits_now"]
        assert found["message"] == "It would wait: needs 0.5 CPUs; 0 of 2 are free."

    def test_a_dry_run_of_several_tells_each_what_it_would_wait_for_behind_the_others(self, server):
        text = "---\n".join(f"name: together-{n}\nresources: {{cpus: {n}}}\nrun: sleep 60\n" for n in (1, 2))
        text += "---\nname: together-3\nafter: together-1\nrun: 'true'\n"
        _, dry = server.request("POST", "/v1/apply", {"text": text, "dry_run": True})
        said = [each["message"] for each in dry["results"]]
        assert said[:2] == ["It would start now.", "It would wait: needs 2 CPUs; 1 of 2 are free."]
        assert said[2].startswith("It would wait: waits for together-1")
        _, made = server.request("POST", "/v1/apply", {"text": text})
        assert [each["message"] for each in made["results"][:2]] == [None, "needs 2 CPUs; 1 of 2 are free"]

    def test_one_whose_volume_vanished_while_it_waited_fails_with_that_and_frees_its_followers(self, server):
        server.request("POST", "/v1/volumes", {"name": "doomed", "size": "1Gi"})
        blocker = server.submit("resources: {cpus: 2}\nrun: sleep 60\n")
        waiting = server.submit("volumes: {/data: doomed}\nrun: cat /data/x\n")
        shutil.rmtree(next((server.place / "data" / "volumes").glob("doomed-*")))
        with ThreadPoolExecutor() as pool:
            followed = pool.submit(server.request, "GET", f"/v1/workloads/{waiting['id']}/logs?follow=true")
            server.request("POST", f"/v1/workloads/{blocker['id']}/stop")
            assert followed.result(60) == (200, "")
        done = server.ended(waiting["id"])
        assert (done["status"], done["reason"]) == ("failed", "VOLUME_LOST")
        assert "doomed" in done["message"]
