"""A closed loop of raw keep-alive connections in a process of its own, so that the client costs the server nothing.

Started as `python load.py SOCKET CLIENTS SECONDS` with the request's bytes on standard input; "{number}" in it becomes
eight digits that differ by request. Prints the requests answered, the seconds they took and the latencies' quantiles.
"""

from __future__ import annotations

import json
import selectors
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from socket import AF_UNIX, socket

NUMBER = b"{number}"
"""As long as what it becomes, so that Content-Length stays right."""
LIMIT = b"{limit}"
"""Becomes 100 to 239 in turn: more different pages than the server keeps, so that each is read anew."""


@dataclass(frozen=True)
class Load:
    answered: int
    seconds: float
    p50: float
    p99: float
    statuses: dict[str, int]

    @property
    def per_second(self) -> float:
        return self.answered / self.seconds


def put_load(path: Path, request: bytes, *, clients: int, seconds: float) -> Load:
    """Runs this file as a process and reads what it measured."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", __file__, str(path), str(clients), str(seconds)],
        input=request,
        stdout=subprocess.PIPE,
        check=True,
    )
    return Load(**json.loads(done.stdout))


class Connection:
    def __init__(self, path: str) -> None:
        self.socket = socket(AF_UNIX)
        self.socket.connect(path)
        self.heard = b""
        self.began = 0.0

    def send(self, request: bytes) -> None:
        self.heard = b""
        self.began = time.perf_counter()
        self.socket.sendall(request)

    def hear(self) -> bool:
        """Reads what is there; True when the answer is whole."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise ConnectionError("the server closed a connection")
        self.heard += part
        head, found, body = self.heard.partition(b"\r\n\r\n")
        if not found:
            return False
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        return len(body) >= int(length)


def _main(path: str, clients: int, seconds: float, request: bytes) -> None:
    sent = 0
    latencies: list[float] = []
    statuses: dict[str, int] = {}
    waiting = selectors.EpollSelector()
    numbered = NUMBER in request or LIMIT in request

    def next_request() -> bytes:
        nonlocal sent
        sent += 1
        if not numbered:
            return request
        return request.replace(NUMBER, b"%08d" % sent).replace(LIMIT, b"%d" % (100 + sent % 140))

    for _ in range(clients):
        connection = Connection(path)
        waiting.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send(next_request())
    began = time.perf_counter()
    open_connections = clients
    while open_connections:
        for key, _ in waiting.select():
            connection = key.data
            if not connection.hear():
                continue
            now = time.perf_counter()
            latencies.append(now - connection.began)
            status = connection.heard[9:12].decode()
            statuses[status] = statuses.get(status, 0) + 1
            if now - began < seconds:
                connection.send(next_request())
            else:
                waiting.unregister(connection.socket)
                open_connections -= 1
    took = time.perf_counter() - began
    cuts = statistics.quantiles(latencies, n=100)
    print(
        json.dumps(
            {"answered": len(latencies), "seconds": took, "p50": cuts[49], "p99": cuts[98], "statuses": statuses}
        )
    )


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.stdin.buffer.read())
