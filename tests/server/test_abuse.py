"""Bad requests and rude clients: a clear answer, never a 500, never a hang, and the server goes on."""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection

import pytest

from tests.running import RunningServer


def raw(server: RunningServer, request: bytes) -> bytes:
    """What comes back for bytes sent as they are."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(server.socket))
        with suppress(BrokenPipeError):  # refused before it was all sent
            connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def post(server: RunningServer, body: bytes, kind: str = "application/json", path: str = "/v1/volumes") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    return raw(server, head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def test_a_body_over_the_limit_is_refused_before_it_is_read(module_server):
    answer = raw(
        module_server,
        b"POST /v1/volumes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n",
    )
    assert b" 413 " in answer.splitlines()[0]
    assert b"larger than 4Mi" in answer


def test_a_body_that_hides_its_length_is_cut_off_at_the_limit(module_server):
    head = b"POST /v1/volumes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    answer = raw(module_server, head + chunk * 4 + b"1\r\nx\r\n")
    assert b" 413 " in answer.splitlines()[0]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_body_of_another_kind_is_refused_with_what_to_send(module_server, kind):
    answer = post(module_server, b'{"name":"x","size":"1Gi"}', kind)
    assert b" 415 " in answer.splitlines()[0]
    assert b"application/json" in answer


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"name":1}', b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"']
)
def test_a_body_that_is_not_what_is_asked_for_is_refused(module_server, body):
    status = post(module_server, body).splitlines()[0]
    assert b" 400 " in status or b" 422 " in status


def test_an_unknown_key_in_a_body_is_named(module_server):
    status, body = module_server.request("POST", "/v1/volumes", {"name": "x", "size": "1Gi", "sise": "2Gi"})
    assert status == 422
    assert body["problems"][0]["field"] == "sise"


@pytest.mark.parametrize(
    "path", ["/v1/volumes/..%2f..%2fetc", "/v1/workloads/%00", "/v1/workloads/%ff", "/v1/workloads/" + "x" * 9000]
)
def test_a_reference_that_cannot_be_one_is_not_found(module_server, path):
    assert module_server.request("GET", path)[0] == 404


def test_what_is_not_http_does_not_disturb_the_server(module_server):
    assert b"400" in raw(module_server, b"\x16\x03\x01 hello\r\n\r\n")
    assert module_server.request("GET", "/healthz")[0] == 200


def test_clients_that_vanish_in_the_middle_are_forgotten(module_server):
    made = module_server.submit("run: while true; do echo line; sleep 0.01; done\n")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(module_server.socket))
            connection.sendall(
                f"GET /v1/workloads/{made['id']}/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
            connection.recv(100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(module_server.socket))
        connection.sendall(b"PUT /v1/uploads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
    module_server.request("POST", f"/v1/workloads/{made['id']}/stop")
    assert module_server.ended(made["id"])["status"] == "stopped"
    assert list((module_server.place / "data" / "uploads").glob("*/*.partial")) == []


def test_an_upload_over_the_limit_leaves_nothing(place):
    from tests.running import start_server

    server = start_server(place, workdir_limit="1Mi")
    try:
        connection = HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(server.socket))
        connection.request("PUT", "/v1/uploads", body=b"x" * 2_000_000)
        answer = connection.getresponse()
        assert answer.status == 413
        assert b"larger than 1Mi" in answer.read()
        connection.close()
        assert list((place / "data" / "uploads").glob("*/*")) == []
    finally:
        server.end()


def test_a_thousand_followers_get_every_line_and_the_api_still_answers(module_server):
    """Over one connection each; the line each waits for is written after all of them listen."""
    made = module_server.submit("run: sleep 4; echo for everyone; sleep 4\n")
    followers = []
    for _ in range(1000):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(module_server.socket))
        connection.sendall(
            f"GET /v1/workloads/{made['id']}/logs?follow=true HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()
        )
        followers.append(connection)
    with ThreadPoolExecutor(8) as readers:
        whole = list(readers.map(_everything, followers))
    assert {answer.partition(b"\r\n\r\n")[2] for answer in whole} == {b"d\r\nfor everyone\n\r\n0\r\n\r\n"}
    assert module_server.request("GET", "/healthz")[0] == 200


def _everything(connection: socket.socket) -> bytes:
    with connection:
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def test_two_hundred_submits_at_once_are_all_kept(module_server):
    def submit(number: int) -> str:
        return str(module_server.submit(f"name: many-{number}\nresources: {{cpus: 0.01}}\nrun: 'true'\n")["id"])

    with ThreadPoolExecutor(16) as clients:
        ids = list(clients.map(submit, range(200)))
    assert len(set(ids)) == 200
    assert {module_server.ended(workload_id)["status"] for workload_id in ids} == {"completed"}
