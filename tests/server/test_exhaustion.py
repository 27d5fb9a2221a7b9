"""Strangers who want to use the server up: with endless headers, with silence, with connections. No token is shown."""

from __future__ import annotations

import resource
import select
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from penstock.server.limits import address_of
from tests.running import RunningServer, start_server

PATIENCE = 60
CLOSED = 45
"""Seconds after which the longest deadline of the server has passed."""


def dial(server: RunningServer) -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    answer = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            answer += part
    return answer


def pour(connection: socket.socket, begin: bytes, piece: bytes, times: int) -> bytes:
    """What comes back for something that does not end, however much of it was taken."""
    with suppress(ConnectionError):
        connection.sendall(begin)
        for _ in range(times):
            connection.sendall(piece)
    return answer_of(connection)


def memory(server: RunningServer) -> int:
    """Bytes the server has resident."""
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
PUT = b"POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (GET, b"X-Many: " + b"x" * 1000 + b"\r\n"),
        (GET + b"X-Long: ", b"x" * 1000),
        (b"GET /", b"x" * 1000),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: " + b"x" * 1000 + b"\r\n"),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ", b"x" * 1000),
    ],
    ids=["many headers", "one long header", "a long path", "many trailers", "one long trailer"],
)
def test_headers_without_end_are_cut_off(module_server, begin, piece):
    before = memory(module_server)
    with dial(module_server) as connection:
        answer = pour(connection, begin, piece, 60_000)
    assert answer == b"" or answer.split()[1] in (b"431", b"401")
    assert memory(module_server) - before < 20 << 20
    assert module_server.tcp("GET", "/healthz")[0] == 200


def test_headers_that_are_too_large_are_told_so(module_server):
    with dial(module_server) as connection:
        connection.sendall(GET + b"X-Long: " + b"x" * (70 << 10) + b"\r\n\r\n")
        answer = answer_of(connection)
    assert answer.split()[1] == b"431"
    assert b"64 KiB" in answer


def test_a_head_of_60_kib_is_taken(module_server):
    with dial(module_server) as connection:
        connection.sendall(GET + b"Connection: close\r\nX-Long: " + b"x" * (60 << 10) + b"\r\n\r\n")
        assert answer_of(connection).split()[1] == b"200"


def stalls(bearer: str) -> dict[str, bytes]:
    """What a connection can stop after."""
    known = PUT + b"Authorization: " + bearer.encode() + b"\r\n"
    return {
        "nothing": b"",
        "half a head": GET,
        "a blank line": b"\r\n",
        "half a body": known + b'Content-Length: 1000\r\n\r\n{"text": ',
        "half a chunk": known + b'Transfer-Encoding: chunked\r\n\r\nff\r\n{"text": ',
        "a request and a blank line": GET + b"\r\n\r\n",
        "a request and half a head": GET + b"\r\n" + GET,
        "a request": GET + b"\r\n",
        "an answer before the body": PUT + b"Content-Length: 1000\r\n\r\n{",
    }


def test_connections_that_say_nothing_more_are_closed(module_server, module_token):
    with ExitStack() as stack:
        waiting = {}
        for name, said in stalls(module_token[1]["Authorization"]).items():
            connection = stack.enter_context(dial(module_server))
            connection.sendall(said)
            waiting[connection] = name
        while waiting:
            readable = select.select(list(waiting), [], [], CLOSED)[0]
            assert readable, f"still open: {sorted(waiting.values())}"
            for connection in readable:
                if not _more(connection):
                    del waiting[connection]


def _more(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(65536))
    except ConnectionResetError:
        return False


def test_a_stranger_is_refused_before_the_body_is_taken(module_server):
    with dial(module_server) as connection:
        connection.settimeout(10)
        connection.sendall(PUT + b"Content-Length: 20000000\r\n\r\n")
        assert connection.recv(100).split()[1] == b"401"


def test_one_address_gets_so_many_connections_and_the_others_theirs(place):
    server = start_server(place, address_connections="20")
    try:
        with ExitStack() as stack:
            for number in range(30):
                connection = stack.enter_context(socket.socket())
                connection.bind((f"127.0.0.{number + 1}", 0))  # all of loopback is one machine
                connection.settimeout(PATIENCE)
                connection.connect(dial_address(server))
            assert connection.recv(100).split()[1] == b"503"
            assert b"address_connections" in answer_of(connection)
            assert server.request("GET", "/healthz")[0] == 200
        while server_refuses(server):
            pass
        assert server.tcp("GET", "/healthz")[0] == 200
    finally:
        server.end()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.9.9.9", True),
        ("127.0.0.1", "::1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_what_counts_as_one_address(one, other, same):
    assert (address_of(one) == address_of(other)) is same


def dial_address(server: RunningServer) -> tuple[str, int]:
    host, port = server.address.removeprefix("http://").split(":")
    return host, int(port)


def server_refuses(server: RunningServer) -> bool:
    """Until it has noticed that the connections are gone."""
    with suppress(ConnectionError):
        return server.tcp("GET", "/healthz")[0] == 503
    return True


def test_however_many_connections_there_are_the_unix_socket_answers(place):
    server = start_server(place, address_connections="65535")
    try:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (400, 400))
        with ExitStack() as stack:
            for _ in range(600):
                with suppress(ConnectionError):
                    stack.enter_context(dial(server))
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(10)
            connection.connect(str(server.socket))
            connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert connection.recv(100).split()[1] == b"200"
            made = server.submit("run: echo works\n")
            assert server.ended(made["id"])["status"] == "completed"
    finally:
        server.end()
