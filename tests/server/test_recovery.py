"""Killed anywhere, it recovers: no workload runs twice, none is forgotten, no state is wrong."""

import os
import signal
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.running import RunningServer, StartFailed, processes_naming, start_server


def again(server: RunningServer, **settings: str) -> RunningServer:
    return start_server(server.place, **settings)


def log(server: RunningServer, ref: str) -> str:
    return server.request("GET", f"/v1/workloads/{ref}/logs")[1]


def running(server: RunningServer, ref: str) -> None:
    """Returns when the workload is RUNNING: woken by changes of the list."""
    while True:
        _, page = server.request("GET", "/v1/workloads?limit=1")
        if server.request("GET", f"/v1/workloads/{ref}")[1]["state"] == "RUNNING":
            return
        server.request("GET", f"/v1/workloads?limit=1&wait=5&seen={page['version']}")


def test_a_job_outlives_the_server_and_is_found_again(server):
    made = server.submit("run: echo before; sleep 2; echo after\n")
    running(server, made["id"])
    server.kill()
    new = again(server)
    try:
        done = new.ended(made["id"])
        assert done["status"] == "completed"
        assert log(new, made["id"]) == "before\nafter\n"
        assert [change["state"] for change in done["history"]].count("RUNNING") == 1
    finally:
        new.end()


def test_a_job_that_ended_while_no_server_ran_has_its_true_end(server):
    made = server.submit("run: sleep 1; exit 5\n")
    running(server, made["id"])
    server.kill()
    for pid in processes_naming(server.place):
        subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], check=True)
    new = again(server)
    try:
        done = new.ended(made["id"])
        assert (done["status"], done["exit_code"]) == ("failed", 5)
    finally:
        new.end()


def test_a_server_that_is_stopped_leaves_jobs_running(server):
    made = server.submit("run: sleep 2; echo done\n")
    running(server, made["id"])
    assert server.request("POST", "/v1/server/stop")[0] == 202
    assert server.process.wait(20) == 0
    with pytest.raises(ConnectionRefusedError):
        server.request("GET", "/healthz")
    new = again(server)
    try:
        assert new.ended(made["id"])["status"] == "completed"
    finally:
        new.end()


@pytest.mark.parametrize("delay_ms", range(0, 60, 4))
def test_killed_at_any_moment_of_a_submit_each_job_runs_exactly_once(place, delay_ms):
    """Each run appends a line to a volume; whatever was accepted must have run once, and only once."""
    server = start_server(place)
    server.request("POST", "/v1/volumes", {"name": "tally", "size": "1Gi", "access_modes": ["ReadWriteMany"]})
    pid = os.fork()
    if pid == 0:
        try:
            for number in range(3):
                server.request(
                    "POST",
                    "/v1/workloads",
                    {"text": f"name: j{number}\nvolumes: {{/t: tally}}\nrun: echo $PENSTOCK_TASK_ID >> /t/runs\n"},
                )
        finally:
            os._exit(0)
    signal.sigtimedwait([signal.SIGCHLD], delay_ms / 1000)
    server.kill()
    os.waitpid(pid, 0)
    new = again(server)
    try:
        _, page = new.request("GET", "/v1/workloads")
        accepted = [item["id"] for item in page["items"]]
        for workload_id in accepted:
            assert new.ended(workload_id)["status"] == "completed"
        runs = next((place / "data" / "volumes").glob("tally-*")) / "runs"
        ran = sorted(runs.read_text().split()) if runs.exists() else []
        assert ran == sorted(accepted)
    finally:
        new.end()


def test_killed_between_stop_and_its_end_the_job_still_ends(server):
    made = server.submit("run: trap '' TERM; sleep 60\n")
    running(server, made["id"])
    server.request("POST", f"/v1/workloads/{made['id']}/stop")
    server.kill()
    new = again(server)
    try:
        assert new.ended(made["id"])["status"] == "stopped"
    finally:
        new.end()


def test_a_killed_supervisor_takes_its_job_along_and_the_outcome_is_unknown(server):
    made = server.submit("run: sleep 4711 & sleep 4712\n")
    running(server, made["id"])
    supervisors = [pid for pid, line in processes_naming(server.place).items() if "supervisor" in line]
    assert supervisors
    while len(processes_naming("sleep 471")) < 2:
        time.sleep(0.05)
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    done = server.ended(made["id"])
    assert (done["state"], done["status"], done["exit_code"]) == ("UNKNOWN", "unknown", None)
    assert done["reason"] == "OUTCOME_UNKNOWN"
    assert done["message"]
    assert processes_naming("sleep 471") == {}


def test_those_who_wait_are_answered_when_the_server_stops(server):
    made = server.submit("run: sleep 3\n")
    running(server, made["id"])
    _, page = server.request("GET", "/v1/workloads")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.request, "GET", f"/v1/workloads/{made['id']}/wait?timeout=60")
        watching = pool.submit(server.request, "GET", f"/v1/workloads?wait=60&seen={page['version']}")
        server.request("GET", "/healthz")
        assert server.request("POST", "/v1/server/stop")[0] == 202
        assert waiting.result()[1]["status"] == "running"
        assert watching.result()[0] == 200
    server.process.wait()
    new = again(server)
    try:
        assert new.ended(made["id"])["status"] == "completed"
    finally:
        new.end()


def test_a_queue_survives(place):
    server = start_server(place, cpus="1")
    blocker = server.submit("resources: {cpus: 1}\nrun: sleep 60\n")
    waiting = [server.submit("resources: {cpus: 1}\nrun: 'true'\n")["id"] for _ in range(3)]
    server.kill()
    new = again(server, cpus="1")
    try:
        assert new.request("GET", f"/v1/workloads/{waiting[0]}")[1]["state"] == "QUEUED"
        new.request("POST", f"/v1/workloads/{blocker['id']}/stop")
        ends = [new.ended(workload_id)["ended_at"] for workload_id in waiting]
        assert ends == sorted(ends)
    finally:
        new.end()


def test_what_ended_before_the_retention_is_forgotten_with_its_log(server):
    made = server.submit("run: echo hello\n")
    server.ended(made["id"])
    server.kill()
    new = again(server, retention="1s")
    try:
        while new.request("GET", f"/v1/workloads/{made['id']}")[0] != 404:
            new.kill()
            new = again(server, retention="1s")
        while list((server.place / "data" / "runs").glob(f"*{made['id']}*")):
            new.request("GET", "/v1/workloads?wait=1&seen=0")
    finally:
        new.end()


def test_the_second_server_on_a_directory_refuses(server):
    with pytest.raises(StartFailed, match=f"Another server \\(process {server.process.pid}\\) uses"):
        again(server)
    assert server.request("GET", "/healthz")[0] == 200


def test_a_taken_port_is_said_and_the_socket_still_works(place, server):
    taken = server.address.rsplit(":", 1)[1]
    other = place / "other"
    other.mkdir()
    second = start_server(other, port=taken)
    try:
        assert second.address is None
        assert second.notices[0].startswith(f"Port {taken} is held by process {server.process.pid} (")
        assert second.request("GET", "/healthz")[0] == 200
    finally:
        second.end()


def test_a_directory_that_cannot_be_written_is_named(place):
    with pytest.raises(StartFailed, match=r"The data directory /proc/penstock cannot be used"):
        start_server(place, data_dir="/proc/penstock")


def test_a_wrong_setting_stops_the_start_and_is_named(place):
    (place / "config" / "penstock").mkdir(parents=True)
    (place / "config" / "penstock" / "config.toml").write_text('prot = 1\nauth = "none"\n')
    with pytest.raises(StartFailed) as refused:
        start_server(place)
    said = str(refused.value)
    assert "config.toml" in said
    assert "did you mean 'port'" in said
    assert '"token" or "header"' in said


def test_a_database_of_a_newer_version_is_refused(server):
    server.process.terminate()
    server.process.wait()
    with sqlite3.connect(server.place / "data" / "penstock.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffff'")
    database.close()
    with pytest.raises(StartFailed, match="newer"):
        again(server)


def test_a_very_long_data_directory_works(place, monkeypatch):
    deep = place / ("x" * 90) / ("y" * 90)
    server = start_server(place, data_dir=str(deep))
    try:
        monkeypatch.chdir(deep)
        server.socket = Path("penstock.sock")
        assert server.request("GET", "/healthz")[0] == 200
        assert server.ended(server.submit("run: 'true'\n")["id"])["status"] == "completed"
        server.request("POST", "/v1/server/stop")
        server.process.wait(20)
    finally:
        monkeypatch.undo()
        server.process.kill()


def fill(path: Path) -> None:
    """Writes until the disk is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


class TestSmallDisk:
    """On a disk that is full nothing is half done; when there is room again everything goes on."""

    @pytest.fixture
    def server(self, place):
        if os.geteuid() != 0:
            pytest.skip("needs root: a small disk is mounted")
        disk = place / "disk"
        disk.mkdir(mode=0o711)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=711", "tmpfs", disk], check=True)
        running = start_server(place, data_dir=str(disk / "data"))
        yield running
        (disk / "ballast").unlink(missing_ok=True)
        running.end()
        subprocess.run(["umount", disk], check=True)

    def test_submits_are_refused_clearly_and_work_again_afterwards(self, server):
        server.ended(server.submit("run: 'true'\n")["id"])
        ballast = server.place / "disk" / "ballast"
        fill(ballast)
        for _ in range(30):
            status, body = server.request("POST", "/v1/workloads", {"text": "run: echo " + "x" * 100_000})
            if status != 201:
                break
        assert status == 507, body
        assert "full" in body["message"]
        assert server.request("GET", "/v1/workloads")[0] == 200
        ballast.unlink()
        assert server.ended(server.submit("run: 'true'\n")["id"])["status"] == "completed"
