"""A host that takes what it is sent and never ends its answer: one byte of a header comes after the other."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

BETWEEN_BYTES = 0.1


class Dripping:
    def __init__(self) -> None:
        self.reached: queue.Queue[str] = queue.Queue()
        """The path of each request."""
        self.left = threading.Event()
        """Somebody did not want to wait any longer."""
        self._over = threading.Event()
        dripping = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                dripping.reached.put(self.path)
                with suppress(OSError):
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
                    while not dripping._over.wait(BETWEEN_BYTES):
                        self.wfile.write(b".")
                dripping.left.set()

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
