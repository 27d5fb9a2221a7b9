"""What somebody else wrote, shown on a terminal: no byte of it is a command to the terminal.

Twice: with a real server, where a colleague's job has all that the server takes; and with a server that lies, which is
a fake in front of the real one that adds escapes to every text of its answers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.ui.output import as_json, as_yaml
from penstock.cli.ui.table import clean, printable
from tests.cli.conftest import Program
from tests.running import RunningServer
from tests.server.test_exec import wait_for

EVIL = "evil\x1b]0;owned\x07\x1b[2J\x7f\x9b31m\x85\x08\r\u202edlrow\u2066"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
OUR_COLOURS = re.compile("\x1b\\[(?:3[1236]|0)m")
TASK = {
    "name": "hostile",
    "envs": {"EVIL": EVIL},
    "setup": f": '{EVIL}'",
    "run": f"bash -c 'exec -a \"$EVIL\" sleep 600' '{EVIL}'",
}
MOMENTS = ("at", "created_at", "started_at", "updated_at", "ended_at", "expires_at")
KEPT = ("id", "next", "code", "state", *MOMENTS)
"""What a fake must leave as it is for the command line to go on."""
VIEWS = [
    "get wk",
    "get wk hostile",
    "get vol",
    "get node",
    "get storage",
    "get user",
    "get group",
    "get cpu",
    "get gpu",
    "describe hostile",
    "describe vol hostile-volume",
    "describe node {node}",
    "jobs list",
    "jobs list --details",
    "jobs status hostile",
    "jobs retry hostile",
    "jobs wait hostile --timeout 1s",
    "jobs delete hostile",
    "volumes list",
    "volumes list --details",
    "volumes get hostile-volume",
    "volumes df",
    "volumes resize hostile-volume 1Mi",
    "nodes",
    "usage",
    "explain hostile",
    "inspect hostile",
    "top hostile --no-watch",
    "top node --no-watch",
    "token list",
    "doctor",
    "auth whoami",
    "adm audit",
    "adm users",
    "adm groups",
    "server status",
    "version",
    "convert -f task.yaml --to document",
    "apply -f task.yaml --dry-run",
    "jobs submit task.yaml --dry-run",
    "delete vol no-such --force",
]
NOTHING_THERE = ("get user", "get gpu", "adm users", "describe node {node}")
FORMS = ["table", "wide", "json", "yaml", "name"]


class PoisonedServer:
    """A fake: passes requests on to a real server, and adds escapes to the texts it answers."""

    def __init__(self, real: RunningServer) -> None:
        handler = type("Handler", (_Poisoning,), {"real": real})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def end(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Poisoning(BaseHTTPRequestHandler):
    real: RunningServer

    def log_message(self, *_: Any) -> None:
        pass

    def _pass_on(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body = self.real.request(self.command, self.path, json.loads(sent) if sent else None)
        data = json.dumps(poisoned(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_PUT = _pass_on


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: each if key in KEPT else poisoned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each) for each in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


@pytest.fixture(scope="module")
def hostile(server: RunningServer) -> RunningServer:
    job = server.submit(json.dumps(TASK))
    server.request("POST", "/v1/volumes", {"name": "hostile-volume", "size": "1Mi"})
    server.request("POST", "/v1/tokens", {"description": EVIL})
    server.request("POST", "/v1/tokens", {"description": "evil"})
    wait_for(lambda: server.request("GET", f"/v1/workloads/{job['id']}")[1]["status"] != "pending")
    return server


@pytest.fixture(scope="module")
def lying(hostile: RunningServer) -> Iterator[PoisonedServer]:
    poisoned = PoisonedServer(hostile)
    yield poisoned
    poisoned.end()


def words_of(view: str, server: RunningServer) -> list[str]:
    node = server.request("GET", "/v1/nodes")[1]["items"][0]["name"]
    return view.format(node=node).split()


@pytest.fixture
def viewer(hostile: RunningServer, penstock: Program) -> Program:
    (penstock.folder / "task.yaml").write_text(json.dumps(TASK))
    return penstock


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_of_a_hostile_job_commands_the_terminal(hostile, viewer, view):
    for form in ("wide", "json", "yaml"):
        words = [*words_of(view, hostile), *(() if form == "table" else ("-o", form))]
        done = viewer(*words)
        assert not UNSAFE.search(done.out + done.err), (words, done)


@pytest.mark.parametrize("view", VIEWS)
def test_no_answer_of_a_lying_server_commands_the_terminal(hostile, lying, viewer, view):
    shown = ""
    for form in FORMS:
        words = [*words_of(view, hostile), *(() if form == "table" else ("-o", form))]
        done = viewer(*words, PENSTOCK_API_URL=lying.url)
        assert not UNSAFE.search(done.out + done.err), (words, done)
        shown += done.out + done.err
    assert "evil" in shown or view in NOTHING_THERE


@pytest.mark.parametrize("view", ["describe hostile", "jobs status hostile", "jobs list", "get wk", "doctor"])
def test_on_a_terminal_nothing_but_our_colours_comes_through(hostile, lying, viewer, view):
    _, shown = viewer.on_terminal(*view.split(), PENSTOCK_API_URL=lying.url, TERM="xterm")
    assert "evil" in shown
    assert not UNSAFE.search(OUR_COLOURS.sub("", shown))


@pytest.mark.parametrize("form", ["wide", "json", "yaml"])
def test_what_is_watched_does_not_command_the_terminal(hostile, viewer, form):
    watching = viewer.started("get", "wk", "-w", "-o", form)
    assert watching.stdout
    shown = watching.stdout.readline()
    while "hostile" not in shown:
        shown += watching.stdout.readline()
    assert not UNSAFE.search(shown)


def test_what_is_escaped_is_seen(hostile, viewer):
    done = viewer("describe", "hostile")
    assert r"EVIL=evil\x1b]0;owned\x07\x1b[2J\x7f\x9b31m\x85\x08\x0d\u202edlrow\u2066" in done.out


def test_the_value_stays_the_same_for_a_program(hostile, viewer):
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        spec = read(viewer("jobs", "status", "hostile", "-o", form).out)["spec"]
        assert spec["envs"]["EVIL"] == EVIL
    done = viewer("get", "wk", "hostile", "-o", "yaml")
    document = yaml.safe_load(done.out)
    assert document["spec"]["setup"] == TASK["setup"]


@pytest.mark.parametrize("turned", ["a\u202eb", "one\ntwo \u2066three\n", "\u202e7", "a\x85b"])
def test_a_document_that_is_read_back_says_the_same(server, penstock, turned):
    job = server.submit(json.dumps({"run": "true", "envs": {"TURNED": turned}, "setup": f": '{turned}'"}))
    text = penstock("get", "wk", job["id"], "-o", "yaml").out
    assert yaml.safe_load(text)["spec"]["setup"] == f": '{turned}'"
    assert not UNSAFE.search(text)


def test_the_log_of_a_job_is_its_own_business(penstock):
    """As with `kubectl logs`: what a program prints is passed on byte for byte."""
    done = penstock("run", "--", "printf", r"\033[31mred\033[0m")
    assert done.out == "\x1b[31mred\x1b[0m"


@given(st.text(st.characters()))
def test_cleaned_text_has_no_control_characters_and_plain_text_is_left_alone(text):
    cleaned = clean(text)
    assert not UNSAFE.search(cleaned)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    assert printable(text).isprintable()
    if not UNSAFE.search(text) and not re.search("[\ud800-\udfff]", text):
        assert cleaned == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)


@given(VALUES)
def test_json_and_yaml_keep_every_value_and_have_no_control_characters(value):
    assert json.loads(as_json(value)) == value
    assert not UNSAFE.search(as_json(value))
    assert not UNSAFE.search(as_yaml(value))
    assert yaml.safe_load(as_yaml(value)) == value
