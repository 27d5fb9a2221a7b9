"""Who may enter what runs: a shell on a volume is its owner's alone, and a job lends nobody what it mounts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningServer
from tests.server.test_exec import TALKS, Talk, in_the_lab, path_of, shell_path, talk_tcp, wait_for
from tests.server.test_roles import House

READS: dict[str, Any] = {"name": "vault", "policy": {"Volume": ["get", "shell"]}}
WRITES: dict[str, Any] = {"name": "vault", "policy": {"Volume": ["get", "shell", "upload"]}}
LAB: dict[str, Any] = {"name": "lab", "policy": "pwm.all"}
WRITE = ("sh", "-c", "echo x > /volume/file && echo written")


@pytest.fixture
def vault(server: RunningServer) -> Iterator[House]:
    """Ann and bob work in the same group; a volume belongs to another, in which only ann is."""
    house = House(server, {"admin": server.request("POST", "/v1/adm/init", {})[1]["token"]})
    for group in ("lab", "vault"):
        assert house.ask("admin", "PUT", f"/v1/groups/{group}", {"name": group})[0] == 200
    member(house, "ann", LAB, WRITES)
    member(house, "bob", LAB)
    for name in ("ann", "bob"):
        house.tokens[name] = house.ask("admin", "POST", "/v1/tokens", {"user": name})[1]["token"]
    status, volume = house.ask("admin", "POST", "/v1/volumes?group=vault", {"name": "data", "size": "1Gi"})
    assert status == 201, volume
    yield house
    while TALKS:
        TALKS.pop().close()
    wait_for(lambda: "shell-data" not in in_the_lab(house))


def member(house: House, name: str, *groups: dict[str, Any]) -> None:
    status, body = house.ask("admin", "PUT", f"/v1/users/{name}", {"name": name, "groups": list(groups)})
    assert status == 200, body


def opened(house: House, user: str, path: str) -> Talk:
    return talk_tcp(house.server, path, {"Authorization": f"Bearer {house.tokens[user]}"})


def shell_of_ann(house: House) -> tuple[Talk, str]:
    """Her open shell on the volume, and the id of what holds it."""
    talking = opened(house, "ann", shell_path("data", "sh", "-c", "echo up; sleep 600"))
    talking.until(b"up")
    [shell] = house.ask("ann", "GET", "/v1/workloads")[1]["items"]
    return talking, str(shell["id"])


def job_of_ann(house: House, mount: str = "data", name: str = "hers") -> str:
    text = f"name: {name}\nvolumes: {{/data: '{mount}'}}\nrun: sleep 600\n"
    status, job = house.ask("ann", "POST", "/v1/workloads", {"text": text})
    assert status == 201, job
    wait_for(lambda: house.ask("ann", "GET", f"/v1/workloads/{job['id']}")[1]["status"] == "running")
    return str(job["id"])


@pytest.mark.parametrize("user", ["bob", "admin"])
def test_nobody_else_enters_a_shell_on_a_volume(vault, user):
    _, shell = shell_of_ann(vault)
    for path in (path_of(shell, "cat", "/volume/file"), f"/v1/workloads/{shell}/connect?port=8888"):
        refused = opened(vault, user, path)
        assert (refused.status, refused.refused["code"]) == (403, "forbidden")
        assert "shell of ann" in refused.refused["message"]
    assert opened(vault, "ann", path_of(shell, "true")).result()[0] == {"exit_code": 0}


def test_an_admin_sees_that_it_is_there_and_can_stop_it(vault):
    talking, shell = shell_of_ann(vault)
    assert vault.ask("admin", "GET", f"/v1/workloads/{shell}")[1]["user"] == "ann"
    assert vault.ask("admin", "POST", f"/v1/workloads/{shell}/stop")[0] == 200
    assert talking.result()[0] != {"exit_code": 0}


def test_a_shell_writes_only_where_its_owner_may(vault):
    assert opened(vault, "ann", shell_path("data", *WRITE)).result()[1] == b"written\n"
    member(vault, "ann", LAB, READS)
    result, out, err = opened(vault, "ann", shell_path("data", *WRITE)).result()
    assert (result["exit_code"] != 0, out) == (True, b"")
    assert b"Read-only file system" in err
    assert opened(vault, "ann", shell_path("data", "cat", "file")).result()[1] == b"x\n"


def test_a_shell_that_writes_ends_with_the_right_to_write(vault):
    talking, _ = shell_of_ann(vault)
    member(vault, "ann", LAB, READS)
    assert talking.result()[0]["error"]["code"] == "forbidden"


def test_a_shell_that_reads_goes_on_when_other_rights_change(vault):
    member(vault, "ann", LAB, READS)
    talking = opened(vault, "ann", shell_path("data", "sh", "-c", "echo up; read line; echo heard"))
    talking.until(b"up")
    member(vault, "ann", READS)
    talking.say(0, b"\n")
    assert talking.result()[0] == {"exit_code": 0}


ENTRANCES = [lambda job: path_of(job, "cat", "/data/file"), lambda job: f"/v1/workloads/{job}/connect?port=8888"]


@pytest.mark.parametrize("path", ENTRANCES, ids=["exec", "connect"])
def test_a_colleagues_job_lends_nobody_the_volumes_it_mounts(vault, path):
    job = job_of_ann(vault)
    refused = opened(vault, "bob", path(job))
    assert (refused.status, refused.refused["code"]) == (403, "forbidden")
    assert "volume data belongs to group vault" in refused.refused["message"]
    member(vault, "bob", LAB, READS)
    refused = opened(vault, "bob", path(job))
    assert refused.status == 403
    assert "may not write" in refused.refused["message"]


def test_who_could_mount_the_same_enters_a_colleagues_job(vault):
    reading, writing = job_of_ann(vault, "data:ro", "reads"), job_of_ann(vault, name="writes")
    member(vault, "bob", LAB, READS)
    assert opened(vault, "bob", path_of(reading, "true")).result()[0] == {"exit_code": 0}
    member(vault, "bob", LAB, WRITES)
    assert opened(vault, "bob", path_of(writing, "true")).result()[0] == {"exit_code": 0}
    for user in ("ann", "admin"):
        assert opened(vault, user, path_of(writing, "true")).result()[0] == {"exit_code": 0}


def test_who_loses_the_right_to_a_volume_is_shown_out_of_the_job_that_mounts_it(vault):
    member(vault, "bob", LAB, WRITES)
    talking = opened(vault, "bob", path_of(job_of_ann(vault), "sh", "-c", "echo up; sleep 600"))
    talking.until(b"up")
    member(vault, "bob", LAB)
    error = talking.result()[0]["error"]
    assert error["code"] == "forbidden"
    assert "volume data belongs to group vault" in error["message"]


def test_the_owner_of_a_job_enters_it_as_long_as_it_runs(vault):
    job = job_of_ann(vault)
    member(vault, "ann", LAB)
    assert opened(vault, "ann", path_of(job, "true")).result()[0] == {"exit_code": 0}


def test_the_words_of_a_program_are_in_no_audit(vault):
    job = job_of_ann(vault)
    words = ("sh", "-c", "echo hunter2-secret")
    assert opened(vault, "ann", path_of(job, *words)).result()[1] == b"hunter2-secret\n"
    assert opened(vault, "ann", shell_path("data", *words)).result()[1] == b"hunter2-secret\n"
    refused = opened(vault, "bob", path_of(job, *words))
    assert refused.status == 403
    status, page = vault.ask("admin", "GET", "/v1/audit?limit=500")
    assert status == 200
    assert "hunter2" not in json.dumps(page)
    assert [each["detail"] for each in page["items"] if each["id"] == job and each["verb"] == "exec"] == ["sh"]
