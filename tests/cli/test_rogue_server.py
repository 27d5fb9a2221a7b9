"""A server that lies: what it can make the command line do. No real server lies, so this one is a fake: a socket that
speaks HTTP and answers what each test tells it to."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FilesNeeded
from tests.cli.conftest import Program, Result

JOB = {"id": "jabcdefg", "name": "hello", "status": "pending", "nodes": 1}
SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"


class LyingServer:
    """Answers `asks` with 428 until something was uploaded; keeps every upload and every request."""

    def __init__(self) -> None:
        self.files: Any = {}
        self.uploads: list[bytes] = []
        self.requests: list[tuple[str, str]] = []
        self.answer: Callable[[str, str], tuple[int, Any, dict[str, str]] | None] = lambda method, path: None
        handler = type("Handler", (_Handler,), {"lying": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def end(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def sent(self) -> list[str]:
        """The names of all files that were uploaded."""
        names = []
        for upload in self.uploads:
            with tarfile.open(fileobj=io.BytesIO(upload)) as archive:
                names += archive.getnames()
        return names


class _Handler(BaseHTTPRequestHandler):
    lying: LyingServer

    def log_message(self, *_: Any) -> None:
        pass

    def _respond(self, method: str) -> None:
        body = self._body()
        lying = self.lying
        lying.requests.append((method, self.path))
        if chosen := lying.answer(method, self.path):
            self._send(*chosen)
        elif method == "PUT":
            lying.uploads.append(body)
            self._send(200, {"id": "0" * 32}, {})
        elif method == "POST" and not lying.uploads and lying.files:
            asked = FilesNeeded("The workdir must be sent along.", files=lying.files, limit_bytes=1 << 30)
            self._send(428, asked.body(), {})
        elif self.path.startswith("/v1/apply"):
            self._send(200, {"results": []}, {})
        else:
            self._send(200, JOB, {})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = lambda self: self._respond("GET")  # noqa: E731
    do_POST = lambda self: self._respond("POST")  # noqa: E731
    do_PUT = lambda self: self._respond("PUT")  # noqa: E731


@pytest.fixture
def lying() -> Iterator[LyingServer]:
    server = LyingServer()
    yield server
    server.end()


@pytest.fixture
def victim(alone: Program, lying: LyingServer, tmp_path: Path) -> Program:
    """Somebody with a private key, who works in a directory beside it and talks to that server."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text(SECRET)
    project = home / "project"
    (project / "code").mkdir(parents=True)
    (project / "code" / "train.py").write_text("print(1)\n")
    (project / "other").mkdir()
    (project / "other" / "notes.txt").write_text("private")
    alone.environ = alone.environ | {"PENSTOCK_API_URL": lying.url, "HOME": str(home)}
    alone.folder = project
    return alone


def asked_for(victim: Program, lying: LyingServer, text: str, asked: Any, *words: str) -> Result:
    """Submit a text to the server that asks for these files."""
    lying.files = asked
    (victim.folder / "task.yaml").write_text(text)
    return victim(*(words or ("jobs", "submit", "task.yaml", "--detach")))


def wants(path: str) -> dict[str, str]:
    return {"workdir": path}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        pytest.param("run: echo hello\n", "../.ssh", id="nothing is named"),
        pytest.param("run: echo hello\n", ".", id="not even here"),
        pytest.param("workdir: code\nrun: ls\n", "../.ssh", id="something else is named"),
        pytest.param("workdir: code\nrun: ls\n", "code/../../.ssh", id="a way out of it"),
        pytest.param("workdir: code\nrun: ls\n", "other", id="its neighbour"),
        pytest.param("workdir: /data\nrun: ls\n", "/data", id="a directory of the job"),
        pytest.param("envs: {workdir: ../.ssh}\nrun: ls\n", "../.ssh", id="a variable of that name"),
        pytest.param("run: |\n  workdir: ../.ssh\n", "../.ssh", id="a program with that line"),
        pytest.param("# workdir: ../.ssh\nrun: ls\n", "../.ssh", id="a comment"),
        pytest.param("run: ls\nconfig: {x: [\n", "../.ssh", id="a text that cannot be read"),
    ],
)
def test_no_directory_is_sent_that_the_text_does_not_name(victim, lying, text, path):
    absolute = str((victim.folder / path).resolve())
    for asked in (path, absolute):
        done = asked_for(victim, lying, text, wants(asked))
        assert lying.sent() == []
        assert done.code == 125
        assert "The server asks for" in done.err
        assert "nothing was sent" in done.err


@pytest.mark.parametrize("asked", [["../.ssh"], {"workdir": ["../.ssh"]}, {"workdir": None}, "../.ssh", 7])
def test_a_request_for_files_that_makes_no_sense_is_a_fault_of_the_server(victim, lying, asked):
    done = asked_for(victim, lying, "workdir: code\nrun: ls\n", asked)
    assert (done.code, lying.uploads) == (125, [])
    assert done.err.startswith("Error: The server asks for ")


def test_no_flag_and_no_dry_run_sends_what_it_does_not_name(victim, lying):
    lying.files = wants("../.ssh")
    assert victim("run", "-d", "--", "echo", "hello").code == 125
    assert victim("run", "-d", "--workdir", "code", "--", "echo", "hello").code == 125
    assert victim("run", "-d", "--env", "workdir=../.ssh", "--", "echo", "workdir: ../.ssh").code == 125
    done = asked_for(victim, lying, "run: ls\n", wants("../.ssh"), "apply", "-f", "task.yaml")
    assert done.code == 1
    lying.files = wants("code")
    (victim.folder / "task.yaml").write_text("workdir: code\nrun: ls\n")
    assert victim("jobs", "submit", "task.yaml", "--dry-run").code == 125
    assert victim("apply", "-f", "task.yaml", "--dry-run").code == 1
    assert lying.uploads == []


@pytest.mark.parametrize(
    "text",
    [
        "workdir: code\nrun: ls\n",
        '{"workdir": "code", "run": "ls"}',
        "workdir: 'code'\nrun: ls\n",
        "name: &c code\nworkdir: *c\nrun: ls\n",
    ],
)
def test_what_the_text_names_is_sent_and_said(victim, lying, text):
    done = asked_for(victim, lying, text, wants("code"))
    assert done.code == 0, done.err
    assert lying.sent() == ["train.py"]
    assert "Sending code (1 file, 9B)\n" in done.err


def test_of_several_documents_each_may_name_its_own(victim, lying):
    document = "kind: Workload\nmetadata: {name: a}\nspec: {workdir: code}\n"
    text = f"workdir: code\nrun: ls\n---\n{document}---\nkind: List\nitems:\n- spec: {{workdir: other}}\n"
    asked = {"0.workdir": "code", "1.workdir": "code", "2.workdir": "other"}
    done = asked_for(victim, lying, text, asked, "apply", "-f", "task.yaml")
    assert done.code == 0, done.err
    assert lying.sent() == ["train.py", "notes.txt"]  # the same directory once


def test_links_in_what_is_sent_do_not_lead_out_of_it(victim, lying):
    (victim.folder / "code" / "key").symlink_to("../../.ssh/id_ed25519")
    (victim.folder / "code" / "keys").symlink_to("../../.ssh")
    assert asked_for(victim, lying, "workdir: code\nrun: ls\n", wants("code")).code == 0
    assert lying.sent() == ["key", "keys", "train.py"]
    with tarfile.open(fileobj=io.BytesIO(lying.uploads[0])) as archive:
        assert [member.issym() for member in archive] == [True, True, False]


def test_a_redirect_is_not_followed_and_no_token_goes_elsewhere(victim, lying):
    elsewhere = LyingServer()
    try:
        lying.answer = lambda method, path: (307, None, {"Location": elsewhere.url + path})
        done = victim("jobs", "list", PENSTOCK_TOKEN="secret")
        assert (done.code, elsewhere.requests) == (5, [])
        assert done.err.startswith(f"Error: {lying.url} answered 307")
        assert elsewhere.url in done.err
    finally:
        elsewhere.end()


def test_names_that_a_shell_would_read_are_not_completed(victim, lying):
    names = ["train", "$(touch pwned)", "a;b", "`id`", "a b", "x\nplain,y", "~root", "*", "a\x1b[2J"]
    lying.answer = lambda method, path: (200, {"items": [{"name": name, "id": "jabcdefg"} for name in names]}, {})
    environ = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": "penstock jobs status ", "COMP_CWORD": "3"}
    assert victim(**environ).out == "plain,train\nplain,jabcdefg\n"


@pytest.mark.parametrize("words", [("exec", "hello"), ("volumes", "shell", "data")])
def test_the_words_of_a_program_stand_in_no_address(victim, lying, words):
    victim(*words, "--", "curl", "--user", "ann:hunter2")
    assert [path.partition("?")[0] for _, path in lying.requests][-1].endswith(("/exec", "/shell"))
    assert not [path for _, path in lying.requests if "hunter2" in path or "curl" in path]
