"""People are told of the states they asked for: by a webhook, by Telegram, even if nobody listened at first."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.services.notifications import SIGNATURE, signature
from tests.dripping import Dripping
from tests.running import RunningServer, StartFailed, start_server

SECRET = "so nobody else can say it"
PATIENCE = 90


class Listener:
    """A real HTTP server that takes what it is sent; while `deaf` it answers 503."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, dict[str, str], bytes]] = queue.Queue()
        self.deaf = False
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.heard.put((self.path, dict(self.headers), body))
                self.send_response(503 if listener.deaf else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def next(self) -> tuple[str, dict[str, str], dict[str, Any]]:
        path, headers, body = self.heard.get(timeout=PATIENCE)
        return path, headers, json.loads(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def dripping() -> Iterator[Dripping]:
    with Dripping() as dripping:
        yield dripping


@pytest.fixture
def server(place, listener, dripping) -> Iterator[RunningServer]:
    told = {
        "PENSTOCK_WEBHOOKS": f"{listener.address}/hooks,{dripping.address}",
        "PENSTOCK_WEBHOOK_SECRET": SECRET,
        "PENSTOCK_TELEGRAM_TOKEN": "1:bot",
        "PENSTOCK_TELEGRAM_API": listener.address,
    }
    running = start_server(place, told)
    yield running
    running.end()


def test_a_webhook_hears_each_state_it_asked_for_signed(server, listener):
    hook = f"{listener.address}/hooks/mine"
    job = server.submit(f"name: train\nrun: exit 3\nnotify: {{'{hook}': [RUNNING, CRASHED]}}\n")
    server.ended(job["id"])
    path, headers, first = listener.next()
    _, _, second = listener.next()
    assert path == "/hooks/mine"
    assert [(told["state"], told["id"], told["name"]) for told in (first, second)] == [
        ("RUNNING", job["id"], "train"),
        ("CRASHED", job["id"], "train"),
    ]
    assert second["exit_code"] == 3
    assert headers[SIGNATURE] == signature(json.dumps(first).encode(), SECRET)


def test_webhooks_that_nobody_could_tell_from_forged_ones_are_refused_at_the_start(place, listener):
    with pytest.raises(StartFailed, match=r"webhook_secret is not(.|\n)*openssl rand -hex 32"):
        start_server(place, webhooks=f"{listener.address}/hooks")


def test_telegram_alone_needs_no_secret(place, listener):
    server = start_server(place, telegram_token="1:bot", telegram_api=listener.address)
    try:
        server.submit("run: 'true'\nnotify: telegram:4711\n")
        assert listener.next()[0] == "/bot1:bot/sendMessage"
    finally:
        server.end()


def test_telegram_gets_a_sentence(server, listener):
    job = server.submit("name: train\nrun: 'true'\nnotify: telegram:4711\n")
    path, _, told = listener.next()
    assert path == "/bot1:bot/sendMessage"
    assert (told["chat_id"], told["text"]) == ("4711", f"train ({job['id']}) is EXITED, exit code 0")


def test_who_does_not_listen_is_told_again_even_by_the_next_server(place, server, listener):
    listener.deaf = True
    job = server.submit(f"name: train\nrun: 'true'\nnotify: {listener.address}/hooks\n")
    assert listener.next()[2]["id"] == job["id"]
    server.kill()
    listener.deaf = False
    while not listener.heard.empty():
        listener.heard.get()
    again = start_server(place, server.environ)
    try:
        assert listener.next()[2]["state"] == "EXITED"
    finally:
        again.end()


def test_what_comes_after_a_state_that_was_not_heard_waits_for_it(server, listener):
    listener.deaf = True
    job = server.submit(f"run: sleep 600\nnotify: {{'{listener.address}/hooks': [RUNNING, STOPPED]}}\n")
    assert listener.next()[2]["state"] == "RUNNING"
    listener.deaf = False
    server.request("POST", f"/v1/workloads/{job['id']}/stop")
    assert [listener.next()[2]["state"] for _ in range(2)] == ["RUNNING", "STOPPED"]


def test_those_whose_answer_never_ends_hold_up_no_job_and_nobody_else(server, listener, dripping):
    slow = [f"{dripping.address}/{number}" for number in range(19)]
    server.submit(f"run: 'true'\nnotify: {json.dumps([*slow, f'{listener.address}/hooks'])}\n")
    assert {dripping.reached.get(timeout=PATIENCE) for _ in slow} == {f"/{number}" for number in range(19)}
    listener.next()
    job = server.submit(f"run: 'true'\nnotify: {json.dumps([slow[0], f'{listener.address}/hooks'])}\n")
    assert server.ended(job["id"])["state"] == "EXITED"
    assert listener.next()[2]["id"] == job["id"]


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.1:1/hooks",
        "{}/hooksandmore",
        "{}/hooks/../admin",
        "{}/hooks/%2e%2E/admin",
        "http://example.org/hooks",
    ],
)
def test_only_where_the_admin_allows_it_is_anything_sent(server, listener, to):
    address = to.format(listener.address)
    status, answer = server.request("POST", "/v1/workloads", {"text": f"run: 'true'\nnotify: {address}\n"})
    assert status == 422
    [problem] = answer["problems"]
    assert problem["message"] == f"this server does not send to {address}"


def test_the_hosts_that_are_allowed_are_said_and_not_their_paths_which_are_often_secret(place, listener):
    allowed = [f"{listener.address}/T0/secret", f"{listener.address}/T1/secret", "https://bot:secret@example.org/hooks"]
    server = start_server(place, webhooks=",".join(allowed), webhook_secret=SECRET)
    try:
        text = f"run: 'true'\nnotify: {listener.address}/T0\n"
        status, answer = server.request("POST", "/v1/workloads", {"text": text})
        assert status == 422
        assert "secret" not in answer["detail"]
        hint = f"the admin's setting webhooks allows addresses at {listener.address}, https://example.org"
        assert answer["problems"][0]["hint"] == hint
    finally:
        server.end()


DOCUMENT = """\
apiVersion: v1
kind: Workload
metadata: {name: told}
spec:
  driver: pwm.docker
  run: sleep 1
  plugins:
    webhook:
    - url: http://example.org/a
    - url: http://example.org/b
"""
TASK = "name: told\nrun: 'true'\nnotify:\n- http://example.org/a\n- http://example.org/b\n"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (DOCUMENT, [("t.yaml:9:7", "spec.plugins.webhook[0]"), ("t.yaml:10:7", "spec.plugins.webhook[1]")]),
        (TASK, [("t.yaml:4:3", "notify.http://example.org/a"), ("t.yaml:5:3", "notify.http://example.org/b")]),
    ],
)
def test_each_that_may_not_be_told_is_pointed_at(server, text, places):
    status, answer = server.request("POST", "/v1/apply", {"text": text, "source": "t.yaml"})
    assert status == 422
    assert [(problem["where"], problem["field"]) for problem in answer["problems"]] == places
