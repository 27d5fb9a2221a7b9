"""Whose virtual environment gets into a job: that of the account the job runs as, and nobody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.running import RunningServer, start_server
from tests.server.test_identity import speak_as

ANN = 54321

NOT_YOURS = (
    "The virtual environment {} is not there in the job: only who asks over the server's socket on this machine, "
    "as the account that the job runs as, can bring one."
)


def a_project(path: Path, home: Path | str = "/usr/bin") -> Path:
    """With a file that is nobody else's."""
    (path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (path / "pyvenv.cfg").write_text(f"home = {home}\n")
    (path / ".env").write_text("hunter2")
    return path


def token_of(server: RunningServer, user: str) -> dict[str, str]:
    _, made = server.request("POST", "/v1/tokens", {"user": user})
    return {"Authorization": f"Bearer {made['token']}"}


def submitted(server: RunningServer, run: str, venv: Path, headers: dict[str, str]) -> tuple[list[str], str]:
    """What is said at submit, and what the job printed."""
    body = {"text": f"run: {run}\n", "venv": str(venv)}
    status, workload = server.request("POST", "/v1/workloads", body, headers)
    assert status == 201, workload
    server.ended(workload["id"])
    _, log = server.request("GET", f"/v1/workloads/{workload['id']}/logs", None, headers)
    return workload["notices"], log


def test_who_comes_with_a_token_reads_nothing_of_the_owners_as_a_virtual_environment(server: RunningServer) -> None:
    project, token = a_project(server.place / "project"), token_of(server, "mallory")
    run = f"cat {project}/.env"
    notices, log = submitted(server, run, project, token)
    assert "hunter2" not in log
    assert notices == [NOT_YOURS.format(project)]
    missing = server.place / "nothing"
    assert submitted(server, run, missing, token)[0] == [NOT_YOURS.format(missing)]
    assert submitted(server, run, project, {}) == ([], "hunter2")


def test_an_interpreter_that_a_token_names_does_not_bring_what_a_link_leads_to(server: RunningServer) -> None:
    keys = server.place / ".ssh"
    keys.mkdir(mode=0o755)
    (keys / "id").write_text("hunter2")
    (server.place / "bin").symlink_to(keys)
    project, token = a_project(server.place / "project", server.place / "bin"), token_of(server, "mallory")
    assert "hunter2" not in submitted(server, f"cat {server.place}/bin/id", project, token)[1]
    assert "hunter2" not in submitted(server, f"cat {server.place}/bin/id", project, {})[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_server_for_all_accounts_does_not_tell_what_only_root_may_see(place: Path) -> None:
    server = start_server(place, mode="system")
    try:
        (place / "closed").mkdir(mode=0o700)
        project = a_project(place / "closed" / "project", "/secret-home")
        own = a_project(place / "own")
        told = []
        for venv in (project, place / "closed" / "nothing"):
            task = {"text": "run: cat ~/.penstock-venv/pyvenv.cfg", "venv": str(venv)}
            status, answer = speak_as(ANN, server.socket, "POST", "/v1/workloads", json.dumps(task))
            workload = json.loads(answer)
            assert status == 201, workload
            server.ended(workload["id"])
            _, log = server.request("GET", f"/v1/workloads/{workload['id']}/logs")
            assert "secret-home" not in log
            told.append((workload["notices"], log.replace(str(venv), "VENV")))
        assert told[0] == told[1]
        task = {"text": f"run: cat {own}/.env", "venv": str(own)}
        workload = json.loads(speak_as(ANN, server.socket, "POST", "/v1/workloads", json.dumps(task))[1])
        server.ended(workload["id"])
        assert server.request("GET", f"/v1/workloads/{workload['id']}/logs")[1] == "hunter2"
    finally:
        server.end()
