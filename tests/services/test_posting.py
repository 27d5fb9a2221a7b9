"""A POST is heard, or it is said why not, and never later than its deadline."""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.services import notifications
from penstock.services.notifications import DeliveryFailed, WebhookHost, host_of
from tests.dripping import Dripping
from tests.rig.certificates import Certificates

PATIENCE = 60


class Answering(ThreadingHTTPServer):
    """Says `status` to everything; a redirect leads back to itself."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.heard: queue.Queue[tuple[str, str, bytes]] = queue.Queue()
        answering = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answering.heard.put((self.path, self.headers["Host"], body))
                self.send_response_only(103)
                self.end_headers()
                self.send_response(answering.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        super().__init__(("127.0.0.1", 0), Handler)
        self.place = f"localhost:{self.server_port}"


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[Answering]:
    with Answering(getattr(request, "param", 204)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def host() -> Iterator[WebhookHost]:
    host = WebhookHost()
    yield host
    host.close()


async def test_what_is_heard_is_what_was_sent(host, answering):
    await host.post(f"http://{answering.place}/hooks?for=me", b"{}", {})
    assert answering.heard.get(timeout=PATIENCE) == ("/hooks?for=me", answering.place, b"{}")


@pytest.mark.parametrize("answering", [302, 404, 503], indirect=True)
async def test_any_other_answer_is_not_heard_and_leads_nowhere(host, answering):
    with pytest.raises(DeliveryFailed, match=f"answered {answering.status}"):
        await host.post(f"http://{answering.place}/hooks", b"{}", {})
    assert answering.heard.qsize() == 1


async def test_an_answer_that_never_ends_is_left_at_the_deadline(host, monkeypatch):
    monkeypatch.setattr(notifications, "SECONDS", 0.5)
    with Dripping() as dripping:
        with pytest.raises(DeliveryFailed, match=r"did not answer within 0\.5 s"):
            await host.post(f"{dripping.address}/hooks", b"{}", {})
        assert await asyncio.to_thread(dripping.left.wait, PATIENCE)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/", "http://127.0.0.1:99999/", "http://[::1", "http://a..b/"])
async def test_where_nobody_is_nothing_is_heard(host, address):
    with pytest.raises(DeliveryFailed):
        await host.post(address, b"{}", {})


async def test_https_speaks_only_with_whom_the_machine_trusts(host, answering, tmp_path, monkeypatch):
    certificates = Certificates(tmp_path, "")
    certificates.begin()
    certificates.make("localhost", "/CN=localhost")
    answering.socket = _tls(certificates).wrap_socket(answering.socket, server_side=True)
    notifications._authorities.cache_clear()
    with pytest.raises(DeliveryFailed, match="certificate verify failed"):
        await host.post(f"https://{answering.place}/hooks", b"{}", {})
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    notifications._authorities.cache_clear()
    await host.post(f"https://{answering.place}/hooks", b"{}", {})
    notifications._authorities.cache_clear()
    assert answering.heard.get(timeout=PATIENCE) == ("/hooks", answering.place, b"{}")


def _tls(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate("localhost"), certificates.key("localhost"))
    return context


def test_of_an_address_only_the_host_is_shown():
    assert host_of("https://bot:secret@hooks.example.org:8443/T0/B0?key=1") == "https://hooks.example.org:8443"
