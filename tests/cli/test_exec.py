"""`penstock exec` and `penstock volumes shell` as a person uses them: at a terminal, and in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cli.conftest import SECONDS, Program
from tests.cli.test_imports import DEAR, SCRIPT
from tests.running import RunningServer, processes_naming

PROMPT = r"[$#] $"


class Terminal:
    """A terminal with a program on it, which has it for itself as a shell would give it."""

    def __init__(
        self, program: Program, *words: str, columns: int = 90, rows: int = 30, name: str = "penstock"
    ) -> None:
        self._ours, theirs = os.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.process = subprocess.Popen(
            program.line(*words, name=name),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=program.environ,
            cwd=program.folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.shown = b""

    def resize(self, columns: int, rows: int) -> None:
        """The kernel tells the program by SIGWINCH."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, pattern: str) -> str:
        """Return what is shown once it matches; what was matched is not looked at again."""
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern.encode(), self.shown)):
            assert self._read(deadline), f"{pattern!r} is not in {self.shown!r}"
        self.shown = self.shown[found.end() :]
        return found[0].decode()

    def _read(self, deadline: float) -> bool:
        if not select.select([self._ours], [], [], max(deadline - time.monotonic(), 0))[0]:
            return False
        self.shown += os.read(self._ours, 65536)
        return True

    def ended(self) -> int:
        """The exit code, when all that was printed is read."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            self._read(min(deadline, time.monotonic() + 0.05))
            assert time.monotonic() < deadline
        while select.select([self._ours], [], [], 0)[0]:
            self.shown += os.read(self._ours, 65536)
        return self.process.returncode

    @property
    def is_as_it_was(self) -> bool:
        return termios.tcgetattr(self._theirs) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


Open = Callable[..., Terminal]


@pytest.fixture
def open_terminal() -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one(*args: Any, **more: Any) -> Terminal:
        opened.append(Terminal(*args, **more))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


@pytest.fixture(scope="module")
def job(server: RunningServer) -> str:
    return running(server)


def running(server: RunningServer, name: str = "train") -> str:
    workload = server.submit(f"name: {name}\nrun: sleep 600\n")
    wait_for(lambda: server.request("GET", f"/v1/workloads/{workload['id']}")[1]["status"] == "running")
    return str(workload["id"])


def sleeping(mark: str) -> list[int]:
    return [pid for pid, line in processes_naming(f"sleep {mark}").items() if line == f"sleep {mark}"]


def wait_for(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- in a pipe ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["penstock", "k8s-cli"])
def test_the_exit_code_is_the_programs_and_errors_stay_apart(penstock, job, name):
    done = penstock("exec", "train", "--", "sh", "-c", "echo out; echo err >&2; exit 7", name=name)
    assert (done.code, done.out, done.err) == (7, "out\n", "err\n")


def test_options_after_the_job_are_the_programs(penstock, job):
    assert penstock("exec", "train", "echo", "-n", "--tty", "-i").out == "--tty -i"
    assert penstock("exec", job, "--", "--no-such-program").code == 127


def test_bytes_pass_as_they_are(penstock, job):
    everything = bytes(range(256)) * 20_000
    done = subprocess.run(
        penstock.line("exec", "train", "--", "cat"),
        input=everything,
        capture_output=True,
        env=penstock.environ,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout == everything, done.stderr) == (0, True, b"")


def test_without_a_command_a_shell_reads_what_comes_in(penstock, job):
    done = penstock("exec", "train", stdin='echo "$NODE_RANK of $NUM_NODES"; exit 3\n')
    assert (done.code, done.out, done.err) == (3, "0 of 1\n", "")


def test_the_end_of_the_input_ends_the_program(penstock, job):
    assert penstock("exec", "train", "--", "wc", "-c", stdin="").out == "0\n"


def test_no_stdin_leaves_the_input_to_others(penstock, job):
    reads = f"{' '.join(penstock.line('exec', '--no-stdin', 'train', '--', 'cat'))}; cat"
    done = subprocess.run(
        ["sh", "-c", reads], input=b"mine", capture_output=True, env=penstock.environ, timeout=SECONDS
    )
    assert (done.returncode, done.stdout) == (0, b"mine")


def test_whoever_reads_no_further_ends_the_program(penstock, job):
    line = " ".join(penstock.line("exec", "train", "--", "yes", "600.201"))
    done = subprocess.run(
        ["sh", "-c", f"{line} | head -n 2"], capture_output=True, text=True, env=penstock.environ, timeout=SECONDS
    )
    assert (done.stdout, done.stderr) == ("600.201\n600.201\n", "")
    wait_for(lambda: "yes 600.201" not in processes_naming("yes 600.201").values())


def test_ctrl_c_ends_the_program(penstock, job):
    process = subprocess.Popen(
        penstock.line("exec", "train", "--", "sh", "-c", "echo up; sleep 600.202; :"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=penstock.environ,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err.strip()) == (130, b"")
    wait_for(lambda: not sleeping("600.202"))


def test_a_terminal_can_be_asked_for_in_a_pipe(penstock, job):
    done = penstock("exec", "-t", "train", "--", "sh", "-c", "test -t 1 && stty size; cat", stdin="typed\n")
    assert done.code == 0
    assert sorted(done.out.split("\r\n")) == ["", "24 80", "typed", "typed"]  # once by the terminal, whenever that is


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("exec", "nosuch", "ls"), 125, "Error: Task nosuch not found\n"),
        (("exec", "--node", "3", "train", "ls"), 125, "it has one node only and is no array (leave it out)"),
        (("exec", "--node", "1", "--index", "2", "train", "ls"), 2, "--node and --index cannot be used together."),
        (
            ("exec", "train", "--node", "1", "--", "ls"),
            2,
            "'--node' is where the program should begin; put options before the name.",
        ),
        (("exec",), 2, "Missing argument 'NAME_OR_ID'."),
        (("volumes", "shell", "nosuch"), 125, "Error: Volume nosuch not found\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_said(penstock, job, words, code, said):
    done = penstock(*words)
    assert done.code == code
    assert said in done.err
    assert done.out == ""


def test_a_job_that_is_over_is_not_entered(penstock, server):
    over = server.submit("name: over\nrun: true\n")
    server.ended(over["id"])
    done = penstock("exec", "over", "--", "ls")
    assert (done.code, done.err.splitlines()) == (
        125,
        [f"Error: over ({over['id']}) is not running: completed", f"Hint: penstock jobs logs {over['id']}"],
    )


def test_it_imports_nothing_dear(penstock, job):
    line = [sys.executable, "-c", SCRIPT, "exec", "train", "true"]
    done = subprocess.run(line, env=penstock.environ, capture_output=True, text=True, input="", timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert DEAR & set(done.stderr.splitlines()) == set()


# -- at a terminal -----------------------------------------------------------------------------------------------


def test_a_shell_at_a_terminal(penstock, job, open_terminal):
    terminal = open_terminal(penstock, "exec", "train")
    terminal.until(PROMPT)
    terminal.type("tty; stty size\n")
    terminal.until(r"[\r\n]/dev/pts/\d+\r\n30 90\r\n")
    terminal.resize(100, 40)
    terminal.type("until stty size | grep '40 100'; do sleep 0.1; done\n")
    terminal.until(r"[\r\n]40 100\r\n")
    terminal.type("echo 'grüße ☃' | tr -d '\\n' | wc -c\n")
    terminal.until(r"[\r\n]11\r\n")
    terminal.type("exit 5\n")
    assert terminal.ended() == 5
    assert terminal.is_as_it_was


def test_keys_are_the_programs(penstock, job, open_terminal):
    terminal = open_terminal(penstock, "exec", "train")
    terminal.until(PROMPT)
    terminal.type("sleep 600.203\n")
    wait_for(lambda: sleeping("600.203"))
    terminal.type("\x03")  # Ctrl-C
    terminal.until(r"\^C(.|\n)*[$#] $")
    assert not sleeping("600.203")
    terminal.type("sleep 600.206\n")
    wait_for(lambda: sleeping("600.206"))
    terminal.type("\x1a")  # Ctrl-Z
    terminal.until(r"Stopped(.|\n)*[$#] $")
    terminal.type("kill -9 %1; while [ $(jobs -ps) ]; do sleep 0.05; done; echo gone\n")  # bash would not leave before
    terminal.until(r"[\r\n]gone\r\n(.|\n)*[$#] $")
    terminal.type("ä\x7f\x04")  # a letter of two bytes, erased as one; Ctrl-D on the empty line
    assert terminal.ended() == 0
    assert terminal.is_as_it_was


@pytest.mark.skipif(not shutil.which("less"), reason="less is not installed")
def test_a_program_that_takes_the_whole_screen(penstock, job, open_terminal):
    terminal = open_terminal(penstock, "exec", "train", "--", "less", "/etc/services")
    terminal.until(re.escape("\x1b[?1049h"))
    terminal.type("G")
    terminal.until(r"END")
    terminal.type("q")
    terminal.until(re.escape("\x1b[?1049l"))
    assert terminal.ended() == 0
    assert terminal.is_as_it_was


def test_a_program_that_is_killed_is_said_to_be(penstock, server, open_terminal):
    running(server, "short")
    terminal = open_terminal(penstock, "exec", "short")
    terminal.until(PROMPT)
    assert penstock("jobs", "stop", "short").code == 0
    assert terminal.ended() == 137
    assert b"The program was killed" in terminal.shown
    assert terminal.is_as_it_was


FULL_SCREEN = r"printf '\033[?1049h\033[?1h\033=\033[?25l'; echo up; sleep 600.207; :"
PLAIN_SCREEN = "\x1b[?1049l\x1b[?1l\x1b>\x1b[?25h"


def test_the_screen_is_given_back_when_a_full_screen_program_is_killed(penstock, server, open_terminal):
    job = running(server, "edits")
    terminal = open_terminal(penstock, "exec", "edits", "--", "sh", "-c", FULL_SCREEN)
    terminal.until("up")
    server.request("POST", f"/v1/workloads/{job}/stop")
    terminal.until(re.escape(PLAIN_SCREEN))
    terminal.until("The program was killed")
    assert terminal.ended() == 137


def test_a_program_that_ends_by_itself_leaves_the_screen_as_it_likes(penstock, job, open_terminal):
    terminal = open_terminal(penstock, "exec", "train", "--", "sh", "-c", "exit 3")
    assert terminal.ended() == 3
    assert b"\x1b" not in terminal.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_client_that_is_told_to_end_gives_the_terminal_back(penstock, job, open_terminal, number):
    terminal = open_terminal(penstock, "exec", "train", "--", "sh", "-c", "echo up; sleep 600.204; :")
    terminal.until("up")
    assert not terminal.is_as_it_was
    terminal.process.send_signal(number)
    assert terminal.ended() == 128 + number
    assert terminal.is_as_it_was
    wait_for(lambda: not sleeping("600.204"))


def test_after_a_stop_of_the_client_itself_it_goes_on_as_before(penstock, job, open_terminal):
    terminal = open_terminal(penstock, "exec", "train")
    terminal.until(PROMPT)
    terminal.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
    termios.tcsetattr(terminal._theirs, termios.TCSANOW, terminal.before)  # as a shell does that takes it back
    terminal.resize(70, 20)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.type("stty size\n")
    terminal.until(r"[\r\n]20 70\r\n")
    assert not terminal.is_as_it_was
    terminal.type("exit\n")
    assert terminal.ended() == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_goes_away_leaves_the_terminal_as_it_was(alone, open_terminal, how):
    assert alone("run", "--detach", "--name", "job", "--", "sleep", "600").code == 0
    wait_for(lambda: json.loads(alone("jobs", "status", "job", "-o", "json").out)["status"] == "running")
    terminal = open_terminal(alone, "exec", "job", "--", "sh", "-c", FULL_SCREEN.replace("207", "205"))
    terminal.until("up")
    if how == "stop":
        assert alone("server", "stop").code == 0
    else:
        os.kill(json.loads(alone("server", "status", "-o", "json").out)["pid"], signal.SIGKILL)
    assert terminal.ended() == 125
    said = {
        "stop": "Error: The server is stopping, and the program was ended with it.",
        "kill": "Error: The connection to the server broke.",
    }
    assert said[how] in terminal.shown.decode().partition(PLAIN_SCREEN)[2]
    assert terminal.is_as_it_was
    wait_for(lambda: not sleeping("600.205"))
    assert alone("server", "start").code == 0


# -- on a volume -------------------------------------------------------------------------------------------------


def test_a_shell_on_a_volume(penstock, open_terminal):
    assert penstock("volumes", "create", "data", "1Gi").code == 0
    assert penstock("volumes", "shell", "data", "--", "tee", "file", stdin="kept\n").out == "kept\n"
    terminal = open_terminal(penstock, "volumes", "shell", "data")
    terminal.until(PROMPT)
    terminal.type("pwd; cat file; exit 6\n")
    terminal.until(r"[\r\n]/volume\r\nkept\r\n")
    assert terminal.ended() == 6
    assert terminal.is_as_it_was
    assert penstock("jobs", "list", "--name", "shell-data", "-o", "name").out == ""
    assert penstock("volumes", "delete", "data", "--force").code == 0


# -- over TCP ----------------------------------------------------------------------------------------------------


def test_over_tcp_with_a_token(penstock, server, job):
    _, made = server.request("POST", "/v1/tokens", {})
    environ = {"PENSTOCK_API_URL": server.address, "PENSTOCK_TOKEN": made["token"]}
    everything = "".join(map(chr, range(32, 127))) * 1000
    assert penstock("exec", "train", "--", "cat", stdin=everything, **environ).out == everything
    refused = penstock("exec", "train", "ls", PENSTOCK_API_URL=server.address)
    assert refused.code == 125
    assert "You are not signed in." in refused.err
