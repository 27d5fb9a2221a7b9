"""What a server says in one breath with its answer is heard at once, not when it says the next thing."""

from __future__ import annotations

import json
import os
import socket

import pytest

from penstock.cli.ui import relay
from penstock.cli.ui.relay import Relay
from penstock.cli.ui.terminal import TerminalSession
from penstock.client.websocket import BINARY, WebSocket
from tests.client.test_websocket import frame


@pytest.fixture
def silent(monkeypatch):
    """A server that says nothing any more; whoever waits for it finds that out soon."""
    monkeypatch.setattr(relay, "SILENCE_SECONDS", 3.0)
    ours, theirs = socket.socketpair()
    yield ours
    ours.close()
    theirs.close()


def said(channel: int, data: bytes) -> bytes:
    return frame(BINARY, bytes([channel]) + data)


def test_a_program_that_has_ended_already(silent, capfd):
    early = said(relay.STDOUT, b"hello\n") + said(relay.RESULT, json.dumps({"exit_code": 3}).encode())
    assert TerminalSession(WebSocket(silent, early), terminal=False, stdin=False).run() == 3
    assert capfd.readouterr().out == "hello\n"


def test_a_port_that_greets_whoever_comes(silent):
    early = said(relay.STDOUT, b"SSH-2.0-here\r\n") + said(relay.RESULT, json.dumps({"exit_code": 0}).encode())
    source, sink = os.pipe(), os.pipe()
    try:
        Relay(WebSocket(silent, early), source[0], sink[1]).run()
        assert os.read(sink[0], 100) == b"SSH-2.0-here\r\n"
    finally:
        for descriptor in (*source, *sink):
            os.close(descriptor)
