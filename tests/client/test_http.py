"""The client against real sockets that answer byte for byte what a test says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.client.api import Client
from penstock.client.http import SendPiece
from penstock.errors import Invalid, PenstockError, TooLarge, Unreachable


class Peer:
    """A listener on loopback; each connection is handed to the next of its answers."""

    def __init__(self, answers: list[Callable[[socket.socket], None]]) -> None:
        self.requests: list[bytes] = []
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._listener.accept()
            with connection:
                self.requests.append(_request(connection))
                answer(connection)

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()


def _request(connection: socket.socket) -> bytes:
    """The head, and as much of the body as came with it or is announced."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0)
    while len(body) < length or (b"chunked" in head and not body.endswith(b"0\r\n\r\n")):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def peer(*answers: Callable[[socket.socket], None]) -> Iterator[Peer]:
    running = Peer(list(answers))
    yield running
    running.close()


def says(*pieces: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: [connection.sendall(piece) for piece in pieces] and None


def hangs_up(connection: socket.socket) -> None:
    pass


def ok(body: bytes) -> Callable[[socket.socket], None]:
    return says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    "pieces",
    [
        [b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a": 12}'],
        [b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a"', b": 12}"],
        [b'HTTP/1.1 200 OK\r\n\r\n{"a": 12}'],
        [b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{"a": 12}'],
        [b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n5;x=y\r\n', b": 12}\r\n0\r\n\r\n"],
    ],
)
def test_an_answer_is_read_however_it_is_cut(pieces):
    with peer(says(*pieces)) as server:
        assert Client(server.url).get("/x") == {"a": 12}


def test_a_stream_gives_what_has_come_before_the_rest_is_there():
    heard = threading.Event()

    def speak(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
        assert heard.wait(10)
        connection.sendall(b"7\r\nsecond\n\r\n0\r\n\r\n")

    with peer(speak) as server:
        answer = Client(server.url).stream("/logs")
        pieces = iter(answer)
        assert next(pieces) == b"first\n"
        heard.set()
        assert b"".join(pieces) == b"second\n"
        answer.close()


def test_a_stream_that_breaks_off_is_not_taken_for_its_end():
    with peer(says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")) as server:
        answer = Client(server.url).stream("/logs")
        with pytest.raises(ConnectionError):
            answer.read()
        answer.close()


def test_the_servers_error_is_the_same_exception_here():
    body = b'{"detail":"x","code":"invalid","message":"The task is wrong.","hint":"mend it"}'
    with (
        peer(says(b"HTTP/1.1 422 x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))) as server,
        pytest.raises(Invalid, match=r"The task is wrong\.") as caught,
    ):
        Client(server.url).get("/x")
    assert caught.value.hint == "mend it"


def test_an_error_page_of_a_proxy_becomes_its_status():
    with (
        peer(says(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>")) as server,
        pytest.raises(PenstockError, match=r"The server answered 502\."),
    ):
        Client(server.url).get("/x")


def test_a_connection_that_breaks_before_the_answer_is_tried_once_more():
    with peer(hangs_up, ok(b"{}")) as server:
        assert Client(server.url).get("/x") == {}


def test_a_repeated_create_carries_the_same_key():
    with peer(hangs_up, ok(b"{}")) as server:
        Client(server.url).post("/v1/volumes", {"name": "a"}, create=True)
    keys = [line for request in server.requests for line in request.split(b"\r\n") if b"Idempotency-Key" in line]
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert json.loads(server.requests[1].split(b"\r\n\r\n")[1]) == {"name": "a"}


def test_what_might_be_done_twice_is_not_repeated():
    with (
        peer(hangs_up) as server,
        pytest.raises(Unreachable, match="broke before an answer") as caught,
    ):
        Client(server.url).delete("/v1/volumes/x")
    assert caught.value.hint == "it may or may not have been done: check before you repeat it"


def test_a_server_that_does_not_answer_in_time_is_named():
    done = threading.Event()
    with peer(lambda _: done.wait(10) and None) as server:
        with pytest.raises(Unreachable, match=f"{server.url} did not answer within 0s"):
            Client(server.url, timeout=0.05).get("/x")
        done.set()


def test_nobody_there_says_which_address_and_what_to_do():
    with pytest.raises(
        Unreachable, match=r"No server answers at http://127\.0\.0\.1:1: Connection refused\."
    ) as caught:
        Client("http://127.0.0.1:1").get("/x")
    assert caught.value.hint
    assert "penstock server start" in caught.value.hint


def test_an_upload_goes_out_in_chunks():
    def fill(send: SendPiece) -> None:
        for piece in (b"abc", b"", b"de"):
            send(piece)

    with peer(ok(b'{"id": "u"}')) as server:
        assert Client(server.url).put("/v1/uploads", fill) == {"id": "u"}
    assert server.requests[0].endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")


def test_a_refused_upload_says_why_though_it_was_not_read_to_its_end():
    body = b'{"code":"too_large","message":"Too much."}'
    answered = threading.Event()

    def fill(send: SendPiece) -> None:
        send(b"x")
        assert answered.wait(10)
        while True:
            send(b"x" * 65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 413 x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                connection.shutdown(socket.SHUT_RDWR)
                answered.set()

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(TooLarge, match=r"Too much\."):
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}").put("/v1/uploads", fill)
        thread.join()


def test_a_list_is_read_over_its_pages():
    pages = [{"items": [{"id": "a"}], "next": "c d", "version": "7"}, {"items": [{"id": "b"}], "next": None}]
    with peer(*(ok(json.dumps(page).encode()) for page in pages)) as server:
        listing = Client(server.url).list("/v1/volumes", {"name": "ä", "all_users": True, "status": None}, 0)
    assert listing == ([{"id": "a"}, {"id": "b"}], False, "7")
    assert server.requests[0].startswith(b"GET /v1/volumes?name=%C3%A4&all_users=true&limit=500 HTTP/1.1\r\n")
    assert server.requests[1].startswith(b"GET /v1/volumes?name=%C3%A4&all_users=true&limit=500&cursor=c%20d HTTP/1.1")


def test_a_list_stops_at_its_limit_and_says_that_there_is_more():
    with peer(ok(b'{"items": [{"id": "a"}], "next": "c", "version": "7"}')) as server:
        assert Client(server.url).list("/v1/volumes", {}, 1) == ([{"id": "a"}], True, "7")


def test_a_token_of_the_environment_goes_before_the_kept_one(monkeypatch):
    monkeypatch.setenv("PENSTOCK_TOKEN", "pst_env")
    with peer(ok(b"{}")) as server:
        Client(server.url).get("/x")
    assert b"\r\nAuthorization: Bearer pst_env\r\n" in server.requests[0]


def test_a_server_without_tls_at_an_https_address_is_told_apart():
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Unreachable, match=r"No server answers at https://127\.0\.0\.1:\d+: .*SSL"):
            Client(f"https://127.0.0.1:{listener.getsockname()[1]}").get("/x")
        thread.join()
