"""The TCP port of a server: whoever holds it is shown tokens, so nobody else must get it, and no other is taken."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.running import RunningServer, StartFailed, server_environ, start_server

SECONDS = 60


def free_port() -> int:
    """One that is free on both loopback addresses, below those the kernel gives away."""
    for port in range(20_000 + os.getpid() % 5000, 32_000):
        try:
            with socket.create_server(("127.0.0.1", port)), socket.create_server(("::1", port), family=socket.AF_INET6):
                return port
        except OSError:
            continue
    raise AssertionError("no port is free")


def facts(server: RunningServer) -> dict:
    status, found = server.request("GET", "/v1/server")
    assert status == 200
    return found


def address_in_time(server: RunningServer) -> str:
    until = time.monotonic() + SECONDS
    while not (address := facts(server)["address"]):
        assert time.monotonic() < until
    return address


def test_a_configured_port_that_is_taken_is_waited_for_and_no_other_is_used(place):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        server = start_server(place, port=str(port))
        try:
            assert server.address is None
            said = facts(server)["problem"]
            assert f"Port {port} is held by process {os.getpid()} (" in said
            assert f"(uid {os.getuid()})" in said
            assert any(said in notice for notice in server.notices)
            checks = {check["name"]: check for check in server.request("GET", "/v1/doctor")[1]["checks"]}
            assert (checks["port"]["ok"], checks["port"]["detail"]) == (False, said)
            assert said in (place / "server.log").read_text()
        except BaseException:
            server.end()
            raise
    try:
        server.address = address_in_time(server)
        assert server.address == f"http://127.0.0.1:{port}"
        assert server.tcp("GET", "/healthz")[0] == 200
        assert facts(server)["problem"] is None
        assert f"port {port} is free by now" in (place / "server.log").read_text()
    finally:
        server.end()


def test_localhost_is_the_server_by_either_of_its_addresses(server):
    """Else a job listens on the other one, and is shown the tokens of all who say localhost."""
    port = int(server.address.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("::1", port), family=socket.AF_INET6)
    with socket.create_connection(("::1", port), timeout=SECONDS) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).split()[1] == b"200"


def fresh(place: Path) -> RunningServer:
    """A server whose port nobody has set."""
    environ = server_environ(place)
    del environ["PENSTOCK_PORT"]
    return _started(place, environ)


def _started(place: Path, environ: dict[str, str], *line: str, fds: tuple[int, ...] = ()) -> RunningServer:
    hear, low = os.pipe()
    say = fcntl.fcntl(low, fcntl.F_DUPFD, 100)  # not where sockets are handed over
    os.close(low)
    with (place / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [*line, sys.executable, "-m", "penstock.server"],
            env=environ | {"PENSTOCK_READY_FD": str(say)}, pass_fds=[say, *fds], stdin=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip
    os.close(say)
    with os.fdopen(hear) as pipe:
        ready = json.loads(pipe.readline())
    if "error" in ready:
        process.wait()
        raise StartFailed(ready["error"]["detail"])
    return RunningServer(process, place, Path(ready["socket"]), ready["address"], ready["notices"], environ)


def test_a_fresh_server_takes_another_port_and_keeps_it_once_somebody_has_a_token(place):
    with socket.create_server(("127.0.0.1", 8000)) if not _taken(8000) else socket.socket():
        server = fresh(place)
    port = int(server.address.rsplit(":", 1)[1])
    assert port != 8000
    assert server.notices[0] == f"Port 8000 is taken; using {port}."
    assert server.request("POST", "/v1/tokens", {})[0] == 201
    server.end()
    with socket.create_server(("127.0.0.1", port)):
        server = fresh(place)
        assert server.address is None
        assert f"Port {port} is held by process {os.getpid()} " in facts(server)["problem"]
        server.end()
    server = fresh(place)
    assert server.address == f"http://127.0.0.1:{port}"
    server.end()


def _taken(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


def restarted(server: RunningServer) -> None:
    """As `penstock server restart` does it."""
    before = facts(server)["started_at"]
    assert server.request("POST", "/v1/server/restart")[0] == 202
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            if facts(server)["started_at"] != before:
                return
        except ConnectionError:
            continue
    raise AssertionError("it did not come back")


GRABS = """
import socket
while True:
    try:
        listener = socket.create_server(("127.0.0.1", {port}))
    except OSError:
        continue
    print("mine", flush=True)
    while True:
        connection = listener.accept()[0]
        print(connection.recv(65536), flush=True)
        connection.close()
"""


def grabbing(server: RunningServer, port: int) -> dict:
    """A job that takes the port as soon as nobody has it, and writes down what it is told."""
    program = GRABS.format(port=port).replace("\n", "\n  ")
    made = server.submit(f"run: |\n  cat > grab.py <<'EOF'{program}\n  EOF\n  echo tries; exec python3 grab.py\n")
    log_has(server, made, "tries")
    return made


def log_has(server: RunningServer, job: dict, text: str) -> str:
    until = time.monotonic() + SECONDS
    while text not in (log := server.request("GET", f"/v1/workloads/{job['id']}/logs")[1]):
        assert time.monotonic() < until, log
    return log


def test_a_job_that_waits_for_the_port_gets_no_token_over_a_restart(place):
    port = free_port()
    server = start_server(place, port=str(port))
    try:
        _, made = server.request("POST", "/v1/tokens", {})
        bearer = {"Authorization": f"Bearer {made['token']}"}
        job = grabbing(server, port)
        for _ in range(3):
            restarted(server)
            assert server.tcp("GET", "/v1/whoami", headers=bearer)[0] == 200
        assert server.request("GET", f"/v1/workloads/{job['id']}/logs")[1] == "tries\n"
        assert server.request("GET", f"/v1/workloads/{job['id']}")[1]["status"] == "running"
    finally:
        server.end()


def test_after_a_kill_a_job_may_have_the_port_and_then_the_server_says_so(place):
    port = free_port()
    server = start_server(place, port=str(port))
    job = grabbing(server, port)
    server.kill()
    while not _taken(port):
        pass
    server = start_server(place, port=str(port))
    try:
        log_has(server, job, "mine")
        assert server.address is None
        assert f"Port {port} is held by process " in facts(server)["problem"]
        server.request("POST", f"/v1/workloads/{job['id']}/stop")
        assert address_in_time(server) == f"http://127.0.0.1:{port}"
    finally:
        server.end()


def test_a_restart_with_wrong_settings_is_refused_and_the_server_goes_on(server):
    config = server.place / "config" / "penstock" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("prot = 1\n")
    status, refused = server.request("POST", "/v1/server/restart")
    assert (status, refused["message"]) == (422, "The settings are invalid now; the server keeps running as it is.")
    assert "'prot' is not a setting" in refused["detail"]
    config.unlink()
    assert server.request("GET", "/healthz")[0] == 200


ACTIVATED = "import os,sys\nn=int(sys.argv[1])\nos.environ.update(LISTEN_FDS=str(n), LISTEN_PID=str(os.getpid()))\n"
ACTIVATED += "for i, fd in enumerate(map(int, sys.argv[2:2 + n])): os.dup2(fd, 3 + i, inheritable=True)\n"
ACTIVATED += "os.execv(sys.argv[2 + n], sys.argv[2 + n:])"


def activated(place: Path, *sockets: socket.socket, **settings: str) -> RunningServer:
    """Started as systemd starts what a socket unit is for."""
    high = [os.dup2(each.fileno(), 200 + number) for number, each in enumerate(sockets)]
    environ = server_environ(place) | {f"PENSTOCK_{key.upper()}": value for key, value in settings.items()}
    line = [sys.executable, "-c", ACTIVATED, str(len(high)), *map(str, high)]
    try:
        return _started(place, environ, *line, fds=tuple(high))
    finally:
        for number in high:
            os.close(number)


def unix_socket(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_sockets_that_systemd_opened_are_served_and_outlive_the_server(place):
    with unix_socket(place / "data" / "penstock.sock") as unix, socket.create_server(("127.0.0.1", 0)) as tcp:
        server = activated(place, unix, tcp)
        assert server.address == f"http://127.0.0.1:{tcp.getsockname()[1]}"
        assert server.tcp("GET", "/healthz")[0] == 200
        assert server.socket.stat().st_mode & 0o777 == 0o600
        server.end()
        assert server.socket.exists()
        server = activated(place, unix, tcp)
        assert server.tcp("GET", "/healthz")[0] == 200
        assert server.request("GET", "/healthz")[0] == 200
        server.end()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is missing: apt-get install -y systemd")
def test_systemd_understands_our_units(tmp_path):
    units = Path(__file__).parents[2] / "deploy" / "systemd"
    for unit in units.iterdir():
        text = unit.read_text().replace("/usr/local/bin/penstock", "/bin/true")  # which need not be installed
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", *tmp_path.iterdir()], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["udp", "not listening", "another path", "not loopback"])
def test_what_was_handed_over_is_looked_at_first(place, kind):
    auth = "header" if kind == "not loopback" else "token"
    said = r"listening TCP or Unix|that is not|loopback only"
    with handed(place, kind) as wrong, pytest.raises(StartFailed, match=said):
        activated(place, wrong, auth=auth)


def handed(place: Path, kind: str) -> socket.socket:
    if kind == "udp":
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if kind == "another path":
        return unix_socket(place / "elsewhere.sock")
    return socket.create_server(("0.0.0.0", 0)) if kind == "not loopback" else socket.socket()


def test_variables_meant_for_another_process_are_not_believed(place):
    server = start_server(place, environ={"LISTEN_FDS": "2", "LISTEN_PID": "1"})
    try:
        assert server.tcp("GET", "/healthz")[0] == 200
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(SECONDS)
