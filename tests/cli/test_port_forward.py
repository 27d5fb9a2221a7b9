"""`penstock port-forward` and `penstock ssh-proxy` as a person, a browser and ssh use them."""

from __future__ import annotations

import hashlib
import os
import random
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SECONDS, Program
from tests.engines.contract.inspect import ECHO
from tests.running import RunningServer, start_server

HTTP = """
mkdir -p ~/site && cd ~/site && head -c 3000000 /dev/urandom >blob && echo hello >index.html
exec python3 -u -m http.server --bind 127.0.0.1 0 2>&1
"""
IPV6 = "exec python3 -u -m http.server --bind ::1 0 2>&1"


def listening(server: RunningServer, name: str, script: str) -> int:
    """The port of a job that listens."""
    workload = server.submit(f"name: {name}\nrun: |\n  {script.replace(chr(10), chr(10) + '  ')}\n")
    deadline = time.monotonic() + SECONDS
    while not (said := re.search(r"port (\d+)", server.request("GET", f"/v1/workloads/{workload['id']}/logs")[1])):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(said[1])


@pytest.fixture(scope="module")
def echo(server: RunningServer) -> int:
    return listening(server, "echo", ECHO)


class Forward:
    """A `port-forward` that runs, and the ports it has here."""

    def __init__(self, process: subprocess.Popen[str], count: int) -> None:
        assert process.stderr
        self.process = process
        self.said: list[str] = []
        self.ports = []
        for _ in range(count):
            found = re.match(r"127\.0\.0\.1:(\d+) is port ", line := process.stderr.readline())
            assert found, line
            self.ports.append(int(found[1]))
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(line)

    def until_said(self, text: str) -> str:
        deadline = time.monotonic() + SECONDS
        while text not in "".join(self.said):
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return "".join(self.said)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[0]), timeout=SECONDS)


@contextmanager
def forwarding(penstock: Program, name: str, *ports: str) -> Iterator[Forward]:
    forward = Forward(penstock.started("port-forward", name, *ports), len(ports))
    try:
        yield forward
    finally:
        forward.process.send_signal(signal.SIGINT)
        assert forward.process.wait(SECONDS) == 0


def whole(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def exchanged(connection: socket.socket, sent: bytes) -> bytes:
    """What comes back when it is sent, with the end of it said."""
    sending = threading.Thread(target=lambda: (connection.sendall(sent), connection.shutdown(socket.SHUT_WR)))
    sending.start()
    heard = whole(connection)
    sending.join()
    return heard


def fill(connection: socket.socket) -> int:
    """Send until nothing more is taken; how much that was."""
    sent = 0
    while select.select([], [connection], [], 1)[1]:
        sent += connection.send(bytes(65536))
    return sent


# -- port-forward --------------------------------------------------------------------------------------------------


def test_a_page_of_a_job_opens_in_a_browser(penstock, server):
    port = listening(server, "site", HTTP)
    with forwarding(penstock, "site", f"0:{port}") as forward:
        address = f"http://127.0.0.1:{forward.ports[0]}"
        assert urllib.request.urlopen(f"{address}/", timeout=SECONDS).read() == b"hello\n"
        blob = urllib.request.urlopen(f"{address}/blob", timeout=SECONDS).read()
        inside = penstock("exec", "site", "--", "sha256sum", "site/blob").out.split()[0]
    assert hashlib.sha256(blob).hexdigest() == inside


def test_what_listens_on_ipv6_alone_is_reached_too(penstock, server):
    port = listening(server, "six", IPV6)
    with forwarding(penstock, "six", f"0:{port}") as forward:
        assert urllib.request.urlopen(f"http://127.0.0.1:{forward.ports[0]}/", timeout=SECONDS).status == 200


def test_random_bytes_come_back_and_the_end_is_passed_on(penstock, echo):
    sent = random.Random(3).randbytes(5_000_000)
    with forwarding(penstock, "echo", f"0:{echo}") as forward:
        assert exchanged(forward.connect(), sent) == sent + b"heard 5000000"


def test_one_who_does_not_read_holds_up_nobody_else(penstock, echo):
    with forwarding(penstock, "echo", f"0:{echo}") as forward:
        deaf = forward.connect()
        deaf.setblocking(False)
        sent = fill(deaf)
        assert exchanged(forward.connect(), b"hello") == b"hello" + b"heard 5"
        deaf.setblocking(True)
        deaf.settimeout(SECONDS)
        deaf.shutdown(socket.SHUT_WR)
        assert whole(deaf) == bytes(sent) + b"heard %d" % sent


def test_many_connections_at_once_do_not_meet(penstock, echo):
    with forwarding(penstock, "echo", f"0:{echo}") as forward:
        sent = [os.urandom(20_000) for _ in range(50)]
        heard: dict[int, bytes] = {}

        def one(number: int) -> None:
            heard[number] = exchanged(forward.connect(), sent[number])

        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(sent))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert heard == {number: data + b"heard 20000" for number, data in enumerate(sent)}


def test_several_ports_at_once_on_this_machine_alone(penstock, echo):
    with forwarding(penstock, "echo", f"0:{echo}", f"0:{echo}") as forward:
        assert len(set(forward.ports)) == 2
        here = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert {f"0100007F:{port:04X}" for port in forward.ports} <= set(here)
        assert not {f"00000000:{port:04X}" for port in forward.ports} & set(here)


def test_ctrl_c_ends_it_well_from_the_first_line_on(penstock, echo):
    """It says so in each line, also while there are more to come."""
    process = penstock.started("port-forward", "echo", *[f"0:{echo}"] * 300)
    assert process.stderr.readline().endswith("Ctrl-C ends it.\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 0


def test_where_nothing_listens_each_connection_ends_and_why_is_said(penstock, echo):
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
    with forwarding(penstock, "echo", f"0:{closed}") as forward:
        assert whole(forward.connect()) == b""
        forward.until_said(f"Nothing of it listens on port {closed} of 127.0.0.1.")


def test_a_port_that_is_taken_here_is_said_with_a_way_out(penstock, echo):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        done = penstock("port-forward", "echo", f"{taken}:{echo}")
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        f"Error: Cannot listen on local port {taken}: Address already in use.\nHint: use any free port: 0:{echo}\n"
    )


@pytest.mark.parametrize("ports", ["x", "1:2:3", "8888:", ":8888", "0", "70000", "-1:8888"])
def test_what_is_no_port_is_wrong_usage(penstock, echo, ports):
    done = penstock("port-forward", "echo", "--", ports)
    assert done.code == 2
    assert "is not PORT or LOCAL:PORT" in done.err


def test_a_job_that_is_not_there_or_has_ended_is_said_at_once(penstock, server):
    assert penstock("port-forward", "nowhere", "80").err == "Error: Task nowhere not found\n"
    job = server.submit("name: over\nrun: exit 0\n")
    server.ended(job["id"])
    done = penstock("port-forward", "over", "80")
    assert (done.code, done.err) == (6, f"Error: over ({job['id']}) is not running: completed.\n")


def test_while_the_server_restarts_connections_end_and_afterwards_work_again(place: Path, tmp_path: Path):
    server = start_server(place)
    program = Program(server.environ, tmp_path)
    try:
        port = listening(server, "echo", ECHO)
        with forwarding(program, "echo", f"0:{port}") as forward:
            open_one = forward.connect()
            open_one.sendall(b"x")
            assert open_one.recv(1) == b"x"
            server.kill()
            assert whole(open_one) == b""
            forward.until_said("The connection to the server broke, and what went through it has ended.")
            assert whole(forward.connect()) == b""
            forward.until_said("No server is running.")
            server = start_server(place)
            assert exchanged(forward.connect(), b"again") == b"againheard 5"
    finally:
        program.end()
        server.end()


# -- ssh-proxy -----------------------------------------------------------------------------------------------------


def proxied(penstock: Program, *words: str, **more: Any) -> subprocess.Popen[bytes]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        penstock.line("ssh-proxy", *words), env=penstock.environ, cwd=penstock.folder, **pipes | more
    )


def test_standard_input_and_output_are_the_connection(penstock, echo):
    sent = random.Random(5).randbytes(2_000_000)
    process = proxied(penstock, "echo", str(echo))
    out, err = process.communicate(sent, timeout=SECONDS)
    assert (process.returncode, out, err) == (0, sent + b"heard 2000000", b"")


def test_one_who_has_gone_is_not_waited_for(penstock, echo):
    with proxied(penstock, "echo", str(echo)) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"x")
        process.stdin.flush()
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        process.stdin.close()
        assert process.wait(SECONDS) == 0


def test_what_cannot_be_reached_is_said_and_is_a_failure(penstock, echo):
    process = proxied(penstock, "echo")
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (6, b"")
    assert err.endswith(b"Nothing of it listens on port 22 of 127.0.0.1.\n")


@pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="no ssh server: apt-get install -y openssh-server")
def test_ssh_meets_the_jobs_own_server_through_it(penstock, server, tmp_path):
    """A real ssh server in a job and a real ssh; the account of jobs here has no shell to log in to."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", tmp_path / "host"], check=True)
    script = f"""
umask 077
cat >~/host <<'END'
{(tmp_path / "host").read_text()}END
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
echo port $port
exec /usr/sbin/sshd -D -e -f /dev/null -o ListenAddress=127.0.0.1 -p $port -o HostKey=$HOME/host -o PidFile=none
"""
    port = listening(server, "shell", script)
    proxy, known = " ".join(penstock.line("ssh-proxy", "%h", "%p")), tmp_path / "known"
    options = (f"ProxyCommand={proxy}", "StrictHostKeyChecking=no", f"UserKnownHostsFile={known}", "BatchMode=yes")
    command = ["ssh", "-F", "none", *(f"-o{option}" for option in options), "-p", str(port), "nobody@shell", "true"]
    deadline = time.monotonic() + SECONDS
    while not known.exists():
        done = subprocess.run(command, env=penstock.environ, capture_output=True, text=True, timeout=SECONDS)
        assert time.monotonic() < deadline, done
    assert known.read_text().strip() == f"[shell]:{port} {(tmp_path / 'host.pub').read_text().strip()}"
