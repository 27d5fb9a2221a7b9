"""`exec` and `shell` over WebSockets: who may, what is said, and what is left when one end goes away."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from penstock.client.http import exchange
from penstock.client.websocket import Closed, Handshake, WebSocket
from tests.running import RunningServer, processes_naming, start_server
from tests.server.test_roles import House

PROTOCOL = "v1.channel.penstock"
SECONDS = 60


TALKS: list[Talk] = []


@pytest.fixture(autouse=True)
def _hang_up() -> Iterator[None]:
    yield
    while TALKS:
        TALKS.pop().close()


class Opening(str):
    """An address, and the command that is sent once it has answered."""

    __slots__ = ("command",)

    def __new__(cls, path: str, command: tuple[str, ...]) -> Opening:
        opening = super().__new__(cls, path)
        opening.command = command
        return opening


class Talk:
    """A client of the simplest kind; `refused` is the answer where there is no WebSocket."""

    def __init__(self, connection: socket.socket, path: str, headers: dict[str, str], protocol: str) -> None:
        connection.settimeout(SECONDS)
        handshake = Handshake(protocol)
        answer = exchange(connection, "GET", path, {"Host": "localhost"} | handshake.headers | headers, None)
        self.status = answer.status
        self.refused: Any = None
        if answer.status != 101:
            self.refused = json.loads(answer.read())
            answer.close()
            return
        assert handshake.accepted(answer)
        self.socket = WebSocket(*answer.detach())
        TALKS.append(self)
        if isinstance(path, Opening):
            self.say(5, json.dumps({"command": path.command}).encode())
        self._heard = self.socket.receive()  # what came along with the answer

    def say(self, channel: int, data: bytes) -> None:
        self.socket.send(bytes([channel]) + data)
        while self.socket.unsent:
            self.socket.flush()
            select.select([], [self.socket] if self.socket.unsent else [], [], 0)

    def hear(self) -> tuple[int, bytes]:
        while True:
            for message in self._heard:
                return message[0], message[1:]
            assert select.select([self.socket], [], [], SECONDS)[0], "nothing came"
            self._heard = self.socket.receive()

    def until(self, text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            channel, data = self.hear()
            assert channel in (1, 2), (channel, data)
            seen += data
        return seen

    def result(self) -> tuple[dict[str, Any], bytes, bytes]:
        """How it ended, what it printed and what it complained."""
        out = {1: b"", 2: b""}
        while True:
            channel, data = self.hear()
            if channel == 3:
                return json.loads(data), out[1], out[2]
            out[channel] += data

    def close(self) -> None:
        self.socket.close()


def path_of(ref: str, *command: str, **query: Any) -> str:
    return Opening(f"/v1/workloads/{quote(ref)}/exec?{urlencode(query)}", command)


def talk(server: RunningServer, path: str, headers: dict[str, str] | None = None, protocol: str = PROTOCOL) -> Talk:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(server.socket))
    return Talk(connection, path, headers or {}, protocol)


def talk_tcp(server: RunningServer, path: str, headers: dict[str, str] | None = None) -> Talk:
    host, port = server.address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    return Talk(connection, path, {"Host": f"{host}:{port}"} | (headers or {}), PROTOCOL)


def running(server: RunningServer, name: str = "job", text: str = "sleep 600", **headers: str) -> str:
    """The id of a job that runs."""
    workload = server.submit(f"name: {name}\nrun: |\n  {text}\n")
    wait_for(lambda: server.request("GET", f"/v1/workloads/{workload['id']}")[1]["status"] == "running")
    return str(workload["id"])


def wait_for(holds: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def sleeping(mark: str) -> list[int]:
    return [pid for pid, line in processes_naming(f"sleep {mark}").items() if line == f"sleep {mark}"]


def holding(shell: str) -> list[int]:
    """What holds a volume for this shell, and not for those of other servers on this machine."""
    mark = f"PENSTOCK_TASK_ID={shell}".encode()
    return [pid for pid in sleeping("43200") if mark in _environ(pid)]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has just ended
        return b""


@pytest.fixture(scope="module")
def job(module_server: RunningServer) -> str:
    return running(module_server)


# -- what is said ------------------------------------------------------------------------------------------------


def test_output_errors_and_exit_code_have_channels_of_their_own(module_server, job):
    script = "echo out; echo err >&2; exit 7"
    assert talk(module_server, path_of(job, "sh", "-c", script)).result() == ({"exit_code": 7}, b"out\n", b"err\n")


def test_afterwards_the_connection_is_closed_in_order(module_server, job):
    talking = talk(module_server, path_of(job, "true"))
    assert talking.result()[0] == {"exit_code": 0}
    with pytest.raises(Closed):
        talking.hear()


def test_input_goes_in_as_it_is_and_ends_when_it_is_said_to(module_server, job):
    talking = talk(module_server, path_of("job", "cat"))
    everything = bytes(range(256)) * 100
    talking.say(0, everything)
    talking.say(0, b"")
    talking.say(255, b"\0")
    assert talking.result() == ({"exit_code": 0}, everything, b"")


def test_a_terminal_has_the_size_it_was_opened_with_and_takes_another(module_server, job):
    path = path_of(job, "sh", "-c", "stty size; read x; stty size", tty="true", columns=132, rows=43)
    talking = talk(module_server, path)
    talking.until(b"43 132")
    talking.say(4, b'{"Width": 66, "Height": 11}')
    talking.say(0, b"\n")
    assert b"11 66" in talking.result()[1]


def test_without_a_command_there_is_a_shell(module_server, job):
    talking = talk(module_server, path_of(job))
    talking.say(0, b'echo "I am $BASH"\nexit 4\n')
    result, out, _ = talking.result()
    assert result == {"exit_code": 4}
    assert out.startswith(b"I am /")


def test_a_long_command_is_taken_whole(module_server, job):
    words = "x" * 100_000
    result, out, _ = talk(module_server, path_of(job, "sh", "-c", "echo ${#1}", "sh", words)).result()
    assert (result, out) == ({"exit_code": 0}, b"100000\n")


def test_many_at_once(module_server, job):
    talks = [talk(module_server, path_of(job, "sh", "-c", f"cat; exit {number}")) for number in range(20)]
    for number, talking in enumerate(talks):
        talking.say(0, str(number).encode())
        talking.say(255, b"\0")
    results = [talking.result()[:2] for talking in talks]
    assert results == [({"exit_code": number}, str(number).encode()) for number in range(20)]


def test_one_node_of_several(module_server):
    workload = module_server.submit("name: two\nnum_nodes: 2\nrun: sleep 600\n")

    def both_run() -> bool:
        units = module_server.request("GET", f"/v1/workloads/{workload['id']}")[1]["units"]
        return [unit["state"] for unit in units] == ["RUNNING", "RUNNING"]

    wait_for(both_run)
    assert talk(module_server, path_of("two", "sh", "-c", "echo $NODE_RANK", part=1)).result()[1] == b"1\n"
    assert talk(module_server, path_of("two", "sh", "-c", "echo $NODE_RANK")).result()[1] == b"0\n"
    refused = talk(module_server, path_of("two", "true", part=2)).refused
    assert refused["problems"][0] == {"field": "node", "message": "there is no node 2", "hint": "0 to 1"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"\x01x", "Nothing can be sent on channel 1."),
        (b"\x09x", "Nothing can be sent on channel 9."),
        (b"\xff\x01", "Nothing can be sent on channel 255."),
        (b"\x04{}", 'A size is {"Width": 80, "Height": 24}.'),
        (b"\x04[1]", 'A size is {"Width": 80, "Height": 24}.'),
        (b'\x04{"Width": 1e999, "Height": 1}', 'A size is {"Width": 80, "Height": 24}.'),
        (b"\x04" + b"[" * 100_000, 'A size is {"Width": 80, "Height": 24}.'),
        (b"\x04\xff", 'A size is {"Width": 80, "Height": 24}.'),
    ],
)
def test_what_cannot_be_understood_ends_it_with_an_error(module_server, job, message, said):
    talking = talk(module_server, path_of(job, "sleep", "600.111"))
    talking.say(message[0], message[1:])
    assert talking.result()[0]["error"]["message"] == said
    wait_for(lambda: not sleeping("600.111"))


@pytest.mark.parametrize(
    "message",
    [
        b"\x00ls\n",
        b"\x05",
        b"\x05ls",
        b'\x05"ls"',
        b'\x05["ls"]',
        b'\x05{"command": "ls"}',
        b'\x05{"command": ["ls", 7]}',
        b'\x05{"command": ["ls", "\\u0000"]}',
        b'\x05{"command": ["ls", "\\ud800"]}',
        b"\x05" + b"[" * 100_000,
    ],
)
def test_a_first_message_that_is_no_command_starts_nothing(module_server, job, message):
    talking = talk(module_server, f"/v1/workloads/{job}/exec")
    talking.say(message[0], message[1:])
    result, out, err = talking.result()
    assert result["error"]["message"].startswith("The first message must be the command, on channel 5")
    assert (out, err) == (b"", b"")


@pytest.mark.parametrize("path", ["/v1/workloads/job/exec?command=echo", "/v1/volumes/data/shell?command=echo"])
def test_a_command_in_the_address_is_refused(module_server, job, path):
    refused = talk(module_server, path)
    assert (refused.status, refused.refused["message"]) == (400, "A command is no part of the address.")


def test_a_message_that_is_too_large_ends_it(module_server, job):
    talking = talk(module_server, path_of(job, "sleep", "600.112"))
    talking.socket.send(b"\0" + b"x" * 300_000)
    with pytest.raises(Closed):
        flood(talking)
    wait_for(lambda: not sleeping("600.112"))


def flood(talking: Talk) -> None:
    while True:
        talking.socket.flush()
        select.select([talking.socket], [talking.socket] if talking.socket.unsent else [], [], SECONDS)
        assert not list(talking.socket.receive())


# -- who may -----------------------------------------------------------------------------------------------------


def test_a_token_opens_it_over_tcp_and_nothing_else_does(module_server, module_token, job):
    _, bearer = module_token
    assert talk_tcp(module_server, path_of(job, "true"), bearer).result()[0] == {"exit_code": 0}
    for headers in ({}, {"X-User": "root"}, {"Authorization": "Bearer pst_wrong"}):
        refused = talk_tcp(module_server, path_of(job, "true"), headers)
        assert (refused.status, refused.refused["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://attacker.example", 403),
        ("http://127.0.0.1", 403),
        ("http://127.0.0.1:1", 403),
        ("null", 403),
        ("", 403),
        ("http://{host}.attacker.example", 403),
        ("http://{host}", 101),
        ("https://{host}", 101),
    ],
)
def test_a_page_of_another_origin_opens_nothing(module_server, module_token, job, origin, status):
    address, bearer = module_token
    said = {"Origin": origin.format(host=address.removeprefix("http://"))}
    assert talk_tcp(module_server, path_of(job, "true"), bearer | said).status == status


def test_another_host_name_opens_nothing(module_server, module_token, job):
    _, bearer = module_token
    refused = talk_tcp(module_server, path_of(job, "true"), bearer | {"Host": "attacker.example"})
    assert (refused.status, refused.refused["code"]) == (400, "bad_request")


def test_what_belongs_to_another_is_not_there(place):
    server = start_server(place, auth="header")
    try:
        ann, bob = {"X-User": "ann"}, {"X-User": "bob"}
        _, workload = server.request("POST", "/v1/workloads", {"text": "name: hers\nrun: sleep 600"}, ann)
        _, volume = server.request("POST", "/v1/volumes", {"name": "hers", "size": "1Gi"}, ann)
        wait_for(
            lambda: server.request("GET", f"/v1/workloads/{workload['id']}", headers=ann)[1]["status"] == "running"
        )
        for ask in (talk, talk_tcp):
            assert ask(server, path_of("hers", "true"), ann).result()[0] == {"exit_code": 0}
            for path in (path_of("hers", "true"), path_of(workload["id"], "true"), f"/v1/volumes/{volume['id']}/shell"):
                refused = ask(server, path, bob)
                assert (refused.status, refused.refused["code"]) == (404, "not_found")
    finally:
        server.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_kernel_says_who_opens_it_and_closed_ones_do_not_count(place):
    """The number an account may have open is small here, and it opens more than that, one after the other."""
    server = start_server(place, mode="system")
    try:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (400, 400))
        _, mine = server.request("POST", "/v1/workloads", {"text": "name: roots\nrun: sleep 600"})
        done = subprocess.run(
            ["/usr/bin/python3", "-c", OPENS_MANY, str(server.socket), f"/v1/workloads/{mine['id']}/exec"],
            user=54321, group=54321, extra_groups=[], capture_output=True, text=True, check=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.stdout == "404 " * 150
    finally:
        server.end()


OPENS_MANY = """
import socket, sys
for _ in range(150):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    lines = [f"GET {sys.argv[2]} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==", "", ""]
    connection.sendall("\\r\\n".join(lines).encode())
    print(connection.recv(4096).split()[1].decode(), end=" ")
    while connection.recv(4096):
        pass
"""


# -- what is refused before it begins ----------------------------------------------------------------------------


def test_what_does_not_run_is_refused_in_words(module_server):
    workload = module_server.submit("name: over\nrun: true\n")
    module_server.ended(workload["id"])
    refused = talk(module_server, path_of("over", "true"))
    assert refused.status == 409
    assert refused.refused["message"] == f"over ({workload['id']}) is not running: completed"
    waiting = module_server.submit("name: waits\nresources:\n  cpus: 1\nrun: sleep 600\nmax_duration: 1h\nafter: job\n")
    refused = talk(module_server, path_of("waits", "true"))
    assert refused.status == 409
    assert refused.refused["message"].startswith(f"waits ({waiting['id']}) is not running: pending")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (path_of("nosuch", "true"), 404, "not_found"),
        (path_of("job", "true", part=-1), 422, "invalid"),
        (path_of("job", "true", part="x"), 422, "invalid"),
        (path_of("job", "true", tty="true", columns=0), 422, "invalid"),
        ("/v1/volumes/nosuch/shell", 404, "not_found"),
        ("/v1/nothing", 404, "not_found"),
        ("/v1/workloads", 404, "not_found"),
    ],
)
def test_a_refusal_is_an_ordinary_error(module_server, job, path, status, code):
    refused = talk(module_server, path)
    assert (refused.status, refused.refused["code"]) == (status, code)
    assert refused.refused["detail"]


def test_an_unknown_sub_protocol_is_refused(module_server, job):
    refused = talk(module_server, path_of(job, "true"), protocol="v5.channel.k8s.io")
    assert (refused.status, refused.refused["hint"]) == (400, f"use {PROTOCOL}")


@pytest.mark.parametrize("path", ["/v1/workloads/job/exec?tty=true", "/v1/volumes/data/shell"])
def test_without_a_websocket_it_says_what_it_is(module_server, job, path):
    status, body = module_server.request("GET", path)
    assert (status, body["message"]) == (400, "This address speaks WebSocket.")


# -- when one end goes away --------------------------------------------------------------------------------------


def test_a_client_that_goes_away_leaves_no_program(module_server, job):
    talking = talk(module_server, path_of(job, "sh", "-c", "echo up; sleep 600.113; :"))
    talking.until(b"up")
    wait_for(lambda: sleeping("600.113"))
    talking.socket._connection.close()  # as the kernel does it for a killed one
    wait_for(lambda: not sleeping("600.113"))


def test_a_job_that_ends_takes_the_program_along(server):
    job = running(server)
    talking = talk(server, path_of(job, "sh", "-c", "echo up; sleep 600.114; :"))
    talking.until(b"up")
    server.request("POST", f"/v1/workloads/{job}/stop")
    assert talking.result()[0] == {"exit_code": 137}
    assert not sleeping("600.114")


def test_a_server_that_stops_says_so(server):
    job = running(server)
    talking = talk(server, path_of(job, "sh", "-c", "echo up; sleep 600.115; :"))
    talking.until(b"up")
    server.process.send_signal(signal.SIGTERM)
    result = talking.result()[0]
    assert result["error"]["message"] == "The server is stopping, and the program was ended with it."
    assert server.process.wait(SECONDS) == 0
    assert not sleeping("600.115")
    again = start_server(server.place)
    again.end()


def test_a_server_that_is_killed_leaves_no_program(server):
    job = running(server)
    talking = talk(server, path_of(job, "sh", "-c", "echo up; sleep 600.116; :"))
    talking.until(b"up")
    server.kill()
    with pytest.raises(Closed):
        talking.hear()
    wait_for(lambda: not sleeping("600.116"))
    again = start_server(server.place)
    assert talk(again, path_of(job, "true")).result()[0] == {"exit_code": 0}
    again.end()


# -- how much is kept --------------------------------------------------------------------------------------------


def memory_of(server: RunningServer) -> int:
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def settled(value: Any) -> Any:
    """The value, once it has been the same for a while."""
    last, since = value(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.02)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last


def test_output_that_nobody_reads_is_not_kept(server):
    job = running(server)
    before = memory_of(server)
    talking = talk(server, path_of(job, "sh", "-c", "exec yes 600.117"))
    talking.hear()
    [(pid, _)] = processes_naming("yes 600.117").items()
    written = settled(lambda: Path(f"/proc/{pid}/io").read_text().split()[3])
    assert int(written) < 10_000_000
    assert memory_of(server) - before < 20_000_000
    assert b"600.117" in talking.until(b"600.117")  # and it goes on
    talking.close()
    wait_for(lambda: not processes_naming("yes 600.117"))


def test_input_that_nobody_reads_is_not_kept(server):
    job = running(server)
    before = memory_of(server)
    talking = talk(server, path_of(job, "sleep", "600.118"))
    for _ in range(2000):
        talking.socket.send(b"\0" + b"x" * 30_000)
    assert settled(lambda: (talking.socket.flush(), talking.socket.unsent)[1]) > 30_000_000
    assert memory_of(server) - before < 20_000_000
    talking.socket._connection.close()
    wait_for(lambda: not sleeping("600.118"))


def test_command_lines_are_not_written_down(server):
    job = running(server)
    assert talk(server, path_of(job, "echo", "hunter2")).result()[1] == b"hunter2\n"
    assert "hunter2" not in (server.place / "server.log").read_text()


# -- on a volume -------------------------------------------------------------------------------------------------


def shell_path(name: str, *command: str, **query: Any) -> str:
    return Opening(f"/v1/volumes/{name}/shell?{urlencode(query)}", command)


def a_volume(server: RunningServer, name: str = "data", **fields: Any) -> str:
    status, volume = server.request("POST", "/v1/volumes", {"name": name, "size": "1Gi"} | fields)
    assert status == 201, volume
    return str(volume["id"])


def names(server: RunningServer) -> list[str]:
    return [each["name"] for each in server.request("GET", "/v1/workloads?limit=500")[1]["items"]]


def test_a_shell_on_a_volume_sees_it_and_nothing_is_left_of_it(server):
    a_volume(server)
    result, out, _ = talk(server, shell_path("data", "sh", "-c", "pwd; echo kept > file; exit 3")).result()
    assert (result, out) == ({"exit_code": 3}, b"/volume\n")
    assert talk(server, shell_path("data", "cat", "file")).result()[1] == b"kept\n"
    assert names(server) == []
    assert server.request("DELETE", "/v1/volumes/data")[0] == 200


def test_while_it_is_open_the_volume_is_in_use_by_it(server):
    a_volume(server)
    talking = talk(server, shell_path("data"))
    talking.say(0, b"echo ready\n")
    talking.until(b"ready")
    assert [use["name"] for use in server.request("GET", "/v1/volumes/data")[1]["used_by"]] == ["shell-data"]
    status, body = server.request("DELETE", "/v1/volumes/data")
    assert (status, body["code"]) == (409, "in_use")
    talking.close()
    wait_for(lambda: names(server) == [])


def test_a_job_that_runs_on_the_volume_does_not_keep_a_shell_out(server):
    a_volume(server)
    job = server.submit("volumes: {/data: data}\nrun: echo 1 > /data/x; sleep 600\n")
    wait_for(lambda: server.request("GET", f"/v1/workloads/{job['id']}")[1]["status"] == "running")
    wait_for(lambda: talk(server, shell_path("data", "cat", "x")).result()[1] == b"1\n")


def test_a_full_machine_and_a_long_queue_keep_nobody_from_their_data(place):
    server = start_server(place, cpus="1")
    try:
        a_volume(server)
        for number in range(3):
            server.submit(f"name: job-{number}\nresources: {{cpus: 1}}\nrun: sleep 600\n")
        assert talk(server, shell_path("data", "true")).result()[0] == {"exit_code": 0}
        assert sorted(names(server)) == ["job-0", "job-1", "job-2"]
    finally:
        server.end()


def test_a_volume_that_is_lost_says_so(server):
    volume = a_volume(server)
    shutil.rmtree(server.place / "data" / "volumes" / f"data-{volume}")
    talking = talk(server, shell_path("data", "true"))
    assert "The shell could not start: the data of volume data is gone" in talking.result()[0]["error"]["message"]
    assert names(server) == []


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_a_server_that_goes_away_leaves_no_shell(server, killed):
    a_volume(server)
    talking = talk(server, shell_path("data", "sh", "-c", "echo up; sleep 600.119; :"))
    talking.until(b"up")
    [shell] = server.request("GET", "/v1/workloads")[1]["items"]
    wait_for(lambda: holding(shell["id"]))  # one can enter as soon as its sandbox is there
    if killed:
        server.kill()
    else:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(SECONDS)
    again = start_server(server.place)
    try:
        wait_for(lambda: names(again) == [])
        assert not sleeping("600.119")
        assert not holding(shell["id"])
    finally:
        again.end()


def test_without_a_sandbox_the_shell_finds_the_volume_all_the_same(place):
    server = start_server(place, sandbox="none", data_dir=str(place / "open"))
    try:
        volume = a_volume(server, "my-data")
        result, out, _ = talk(server, shell_path("my-data", "pwd")).result()
        assert result == {"exit_code": 0}
        assert out.decode().strip().endswith(f"my-data-{volume}")
    finally:
        server.end()


# -- in a group whose name is not its owner's -----------------------------------------------------------------------

MEMBER = {"name": "ann", "groups": [{"name": "lab", "policy": "pwm.all"}]}


@pytest.fixture
def lab(server: RunningServer) -> House:
    """A server with an admin and a member of a group, who has a volume in it."""
    house = House(server, {"admin": server.request("POST", "/v1/adm/init", {})[1]["token"]})
    assert house.ask("admin", "PUT", "/v1/groups/lab", {"name": "lab"})[0] == 200
    assert house.ask("admin", "PUT", "/v1/users/ann", MEMBER)[0] == 200
    house.tokens["ann"] = house.ask("admin", "POST", "/v1/tokens", {"user": "ann"})[1]["token"]
    assert house.ask("ann", "POST", "/v1/volumes", {"name": "data", "size": "1Gi"})[0] == 201
    return house


def in_the_lab(house: House) -> list[str]:
    return [each["name"] for each in house.ask("admin", "GET", "/v1/workloads?group=lab")[1]["items"]]


def her_shell(house: House, *command: str) -> Talk:
    return talk_tcp(house.server, shell_path("data", *command), {"Authorization": f"Bearer {house.tokens['ann']}"})


def test_nothing_is_left_of_a_shell_on_a_volume_of_a_group(lab):
    assert her_shell(lab, "pwd").result()[:2] == ({"exit_code": 0}, b"/volume\n")
    assert in_the_lab(lab) == []
    assert lab.ask("ann", "DELETE", "/v1/volumes/data")[0] == 200


@pytest.mark.parametrize(
    "change", [{"active": False}, {"groups": []}, None], ids=["deactivated", "of no group", "deleted"]
)
def test_nothing_is_left_of_the_shell_of_one_who_may_no_longer_be_in_it(lab, change):
    talking = her_shell(lab, "sh", "-c", "echo up; sleep 600.120; :")
    talking.until(b"up")
    method, body = ("DELETE", None) if change is None else ("PUT", MEMBER | change)
    assert lab.ask("admin", method, "/v1/users/ann", body)[0] == 200
    talking.close()
    wait_for(lambda: in_the_lab(lab) == [])
    assert not sleeping("600.120")
    assert lab.ask("admin", "DELETE", "/v1/volumes/data?group=lab")[0] == 200


def test_a_server_that_is_killed_leaves_no_shell_of_a_group(lab):
    talking = her_shell(lab, "sh", "-c", "echo up; sleep 600.121; :")
    talking.until(b"up")
    lab.server.kill()
    lab.server = start_server(lab.server.place)
    try:
        wait_for(lambda: in_the_lab(lab) == [])
        assert not sleeping("600.121")
        assert lab.ask("ann", "DELETE", "/v1/volumes/data")[0] == 200
    finally:
        lab.server.end()
