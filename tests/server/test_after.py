"""`after`: a job starts when those it names have completed, never before, and fails with the first that does not."""

import pytest

from tests.running import RunningServer, start_server
from tests.server.test_attempts import states, until, volume

GATED = "volumes: {/d: %s}\nresources: {cpus: 0.1}\nrun: 'until [ -e /d/open ]; do sleep 0.05; done%s'\n"


def open_gate(server: RunningServer, name: str) -> None:
    next((server.place / "data" / "volumes").glob(f"{name}-*")).joinpath("open").touch()


def submit(server: RunningServer, text: str, **more):
    return server.request("POST", "/v1/workloads", {"text": text} | more)


@pytest.fixture
def gate(module_server, request):
    """A volume whose jobs go on when the gate is opened."""
    name = f"gate-{abs(hash(request.node.name)) % 10_000_000}"
    volume(module_server, name)
    return name


def test_it_waits_for_all_and_says_for_whom_and_goes_on_when_they_completed(module_server, gate):
    done = module_server.ended(module_server.submit("name: done-already\nrun: 'true'\n")["id"])
    prep = module_server.submit(f"name: prep\n{GATED % (gate, '')}")
    made = module_server.submit(f"after: [prep, {done['id']}]\nresources: {{cpus: 0.1}}\nrun: 'true'\n")
    assert (made["state"], made["reason"]) == ("QUEUED", "WAITS_FOR_OTHERS")
    assert made["message"] == f"waits for prep ({prep['id']})"
    assert made["spec"]["after"] == ["prep", done["id"]]
    open_gate(module_server, gate)
    after, before = module_server.ended(made["id"]), module_server.ended(prep["id"])
    assert after["status"] == "completed"
    assert after["started_at"] >= before["ended_at"]


def test_the_command_lines_after_joins_the_files(module_server, gate):
    one = module_server.submit(f"name: one\n{GATED % (gate, '')}")
    two = module_server.submit(f"name: two\n{GATED % (gate, '')}")
    made = module_server.submit("after: one\nrun: 'true'\n", after=["two", one["id"]])
    assert made["message"] == f"waits for one ({one['id']}), two ({two['id']})"
    open_gate(module_server, gate)
    assert module_server.ended(made["id"])["status"] == "completed"


def test_one_that_fails_fails_those_that_wait_and_those_that_wait_for_them(module_server, gate):
    first = module_server.submit(f"name: breaks\n{GATED % (gate, '; exit 1')}")
    second = module_server.submit("name: second\nafter: breaks\nrun: 'true'\n")
    third = module_server.submit("after: second\nrun: 'true'\n")
    open_gate(module_server, gate)
    done = module_server.ended(second["id"])
    assert (done["status"], done["reason"]) == ("failed", "DEPENDENCY_FAILED")
    assert done["message"] == f"breaks ({first['id']}) failed: run ended with code 1."
    assert states(done)[-1] == "CRASHED"
    assert "RUNNING" not in states(done)
    assert module_server.ended(third["id"])["reason"] == "DEPENDENCY_FAILED"


def test_one_that_is_stopped_or_deleted_will_never_complete(module_server):
    stopped = module_server.submit("name: halted\nresources: {cpus: 0.1}\nrun: sleep 60\n")
    waits = module_server.submit("after: halted\nrun: 'true'\n")
    module_server.request("POST", f"/v1/workloads/{stopped['id']}/stop")
    assert module_server.ended(waits["id"])["message"].startswith(f"halted ({stopped['id']}) was stopped")
    module_server.request("DELETE", f"/v1/workloads/{stopped['id']}")
    status, body = submit(module_server, f"after: {stopped['id']}\nrun: 'true'\n")
    assert (status, body["problems"][0]["field"]) == (422, "after")


def test_one_that_is_tried_again_has_not_ended(module_server):
    retried = module_server.submit("name: twice\nretries: 1\nrun: '[ $PENSTOCK_ATTEMPT = 2 ]'\n")
    waits = module_server.submit("after: twice\nrun: 'true'\n")
    done = module_server.ended(waits["id"])
    assert done["status"] == "completed"
    assert done["started_at"] >= module_server.ended(retried["id"])["ended_at"]


def test_one_that_completed_and_was_deleted_meanwhile_is_met(module_server, gate):
    short = module_server.submit("name: short\nttl: 0s\nresources: {cpus: 0.1}\nrun: sleep 1\n")
    long = module_server.submit(f"name: long\n{GATED % (gate, '')}")
    waits = module_server.submit(f"after: [{short['id']}, {long['id']}]\nresources: {{cpus: 0.1}}\nrun: 'true'\n")
    while module_server.request("GET", f"/v1/workloads/{short['id']}")[0] == 200:
        _, page = module_server.request("GET", "/v1/workloads?limit=1")
        module_server.request("GET", f"/v1/workloads?limit=1&wait=2&seen={page['version']}")
    assert module_server.request("GET", f"/v1/workloads/{waits['id']}")[1]["status"] == "pending"
    open_gate(module_server, gate)
    assert module_server.ended(waits["id"])["status"] == "completed"


def test_what_is_not_there_is_said_at_its_place(module_server):
    status, body = submit(module_server, "run: 'true'\nafter: [nowhere, neither]\n", source="train.yaml", after=["nor"])
    assert status == 422
    found = [(problem.get("where"), problem["field"], problem["message"]) for problem in body["problems"]]
    assert found == [
        ("train.yaml:2:1", "after", "Task nowhere not found"),
        ("train.yaml:2:1", "after", "Task neither not found"),
        (None, "--after", "Task nor not found"),
    ]


def test_a_name_means_the_one_that_is_alive_else_the_newest(module_server, gate):
    for code in (1, 0):
        module_server.ended(module_server.submit(f"name: daily\nrun: exit {code}\n")["id"])
    assert module_server.ended(module_server.submit("after: daily\nrun: 'true'\n")["id"])["status"] == "completed"
    alive = [module_server.submit(f"name: daily\n{GATED % (gate, '')}") for _ in range(2)]
    status, body = submit(module_server, "after: daily\nrun: 'true'\n")
    assert status == 422
    assert all(job["id"] in body["problems"][0]["message"] for job in alive)
    open_gate(module_server, gate)


def test_one_that_waits_for_others_is_stopped_at_once_and_can_be_tried_again(module_server, gate):
    module_server.submit(f"name: slow\n{GATED % (gate, '')}")
    waits = module_server.submit("name: impatient\nafter: slow\nrun: 'true'\n")
    _, stopped = module_server.request("POST", f"/v1/workloads/{waits['id']}/stop")
    assert stopped["status"] == "stopped"
    module_server.request("POST", f"/v1/workloads/{waits['id']}/retry", {})
    again = until(module_server, waits["id"], lambda job: job["reason"] == "WAITS_FOR_OTHERS")
    assert again["attempt"] == 2
    open_gate(module_server, gate)
    assert module_server.ended(waits["id"])["status"] == "completed"


def test_a_dry_run_says_for_whom_it_would_wait(module_server, gate):
    prep = module_server.submit(f"name: dry-prep\n{GATED % (gate, '')}")
    _, found = submit(module_server, "after: dry-prep\nrun: 'true'\n", dry_run=True)
    assert (found["fits_now"], found["message"]) == (False, f"It would wait: waits for dry-prep ({prep['id']}).")
    open_gate(module_server, gate)


@pytest.mark.parametrize("code", [0, 1])
def test_it_holds_when_the_server_is_killed_and_the_other_ends_meanwhile(place, code):
    server = start_server(place)
    volume(server, "gate")
    prep = server.submit(f"name: prep\n{GATED % ('gate', f'; exit {code}')}")
    waits = server.submit("after: prep\nrun: 'true'\n")
    until(server, prep["id"], lambda job: job["state"] == "RUNNING")
    server.kill()
    open_gate(server, "gate")
    server = start_server(place)
    try:
        done = server.ended(waits["id"])
        assert done["status"] == ("failed" if code else "completed")
        if not code:
            assert done["started_at"] >= server.ended(prep["id"])["ended_at"]
    finally:
        server.end()
