"""The client's WebSocket against a socket that says, byte for byte, what a test wants."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from penstock.client.api import Client
from penstock.client.websocket import BINARY, CLOSE, PING, PONG, Closed, WebSocket
from penstock.errors import NotFound, Unreachable
from tests.client.test_http import peer


@pytest.fixture
def ends() -> Iterator[tuple[WebSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield WebSocket(ours), theirs
    ours.close()
    theirs.close()


def frame(opcode: int, data: bytes, final: bool = True) -> bytes:
    length = len(data)
    size = (
        bytes([length])
        if length < 126
        else b"\x7e" + length.to_bytes(2)
        if length < 65536
        else b"\x7f" + length.to_bytes(8)
    )
    return bytes([opcode | (0x80 if final else 0)]) + size + data


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    """A client's, which must be masked."""
    with connection.makefile("rb") as file:
        first, second = file.read(2)
        assert second & 0x80, "not masked"
        length = second & 0x7F
        if length >= 126:
            length = int.from_bytes(file.read(2 if length == 126 else 8))
        key = file.read(4)
        data = file.read(length)
    return first, bytes(byte ^ key[place % 4] for place, byte in enumerate(data))


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65535, 65536, 100_003])
def test_messages_of_any_length_go_and_come(ends, length):
    ours, theirs = ends
    message = os.urandom(length)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    theirs.sendall(frame(BINARY, message))
    found: list[bytes] = []
    while not found:
        select.select([ours], [], [])
        found += ours.receive()
    assert found == [message]
    ours.send(message)
    ours.flush()
    assert read_frame(theirs) == (0x80 | BINARY, message)


def test_a_message_in_pieces_with_a_ping_between_them_comes_whole(ends):
    ours, theirs = ends
    theirs.sendall(
        frame(BINARY, b"one ", final=False) + frame(PING, b"there?") + frame(0, b"two") + frame(BINARY, b"x")
    )
    assert list(ours.receive()) == [b"one two", b"x"]
    ours.flush()
    assert read_frame(theirs) == (0x80 | PONG, b"there?")


def test_a_byte_at_a_time_is_as_good(ends):
    ours, theirs = ends
    found: list[bytes] = []
    for byte in frame(BINARY, b"y" * 200):
        theirs.sendall(bytes([byte]))
        found += ours.receive()
    assert found == [b"y" * 200]


def test_what_came_with_the_answer_is_not_lost():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        opened = WebSocket(ours, frame(BINARY, b"early"))
        assert list(opened.receive()) == [b"early"]


def test_nothing_waits_for_a_server_that_does_not_read(ends):
    ours, _ = ends
    for _ in range(100):
        ours.send(b"z" * 65536)
        ours.flush()
    assert ours.unsent > 1_000_000


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame(CLOSE, (1001).to_bytes(2) + b"going away"), "going away"),
        (frame(CLOSE, b""), "the server closed the connection"),
        (b"\x82\x7f" + (1 << 40).to_bytes(8), "no message of ours"),
        (None, "the server closed the connection"),
    ],
)
def test_the_end_is_an_exception_after_the_last_message(ends, sent, said):
    ours, theirs = ends
    theirs.sendall(frame(BINARY, b"last") + (sent or b""))
    if sent is None:
        theirs.close()
    messages = ours.receive()
    assert next(messages) == b"last"
    with pytest.raises(Closed, match=said):
        exhaust(ours, messages)


def exhaust(ours: WebSocket, messages: Iterator[bytes]) -> None:
    assert not list(messages)
    assert not list(ours.receive())


def answering(head: str) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(head.replace("\n", "\r\n").encode())


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 101 Switching\nUpgrade: websocket\nSec-WebSocket-Accept: wrong\nSec-WebSocket-Protocol: p\n\n",
        "HTTP/1.1 101 Switching\nUpgrade: websocket\n\n",
    ],
)
def test_whoever_does_not_speak_websocket_is_found_out(head):
    with peer(answering(head)) as other, pytest.raises(Unreachable, match="did not accept a WebSocket"):
        Client(other.url).websocket("/x", {})


def test_a_refusal_is_the_servers_own_error():
    body = '{"code": "not_found", "message": "Task x not found", "detail": "…"}'.encode()
    head = f"HTTP/1.1 404 Not Found\nContent-Length: {len(body)}\n\n{body.decode()}"
    with peer(answering(head)) as other, pytest.raises(NotFound, match="Task x not found"):
        Client(other.url).websocket("/x", {"label": "-l /tmp", "tty": True, "part": None})
    request = other.requests[0].decode()
    assert request.startswith("GET /x?label=-l%20%2Ftmp&tty=true HTTP/1.1\r\n")
    assert "\r\nConnection: Upgrade\r\n" in request
    assert "Connection: close" not in request


def test_a_broken_connection_is_not_tried_again():
    """What it starts could have begun."""
    with peer(lambda connection: None) as other, pytest.raises(Unreachable, match="broke before an answer"):
        Client(other.url).websocket("/x", {})
    assert len(other.requests) == 1
