"""What runs in a container, tried as the first process of a PID namespace: bash is real, the container is a sandbox."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.base import Launch
from penstock.engines.shared.minder import ARRIVED, Note, command, needs_bash, read_note, verbatim
from tests.engines.contract.stop import SAVE, WAYS
from tests.engines.launches import a_launch

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


class Container:
    """Stands for a container: first process, its output, its termination message, a place for marks."""

    def __init__(self, place: Path, launch: Launch, **env: str) -> None:
        self.note = place / "note"
        self.note.touch()
        self.marks = place / "marks"
        self.marks.mkdir()
        words = [word.replace("$$", "$") for word in command(launch, 2)]
        mounts = ["--ro-bind", "/", "/", "--tmpfs", "/tmp", "--tmpfs", "/run", "--proc", "/proc", "--dev", "/dev"]
        files = ["--bind", str(self.note), "/dev/termination-log", "--bind", str(self.marks), str(Path(ARRIVED).parent)]
        given = {"PATH": os.environ["PATH"], "NUM_NODES": str(launch.spec.nodes), "SAVE": SAVE, "HOME": "/tmp"}
        self.process = subprocess.Popen(
            ["bwrap", "--unshare-pid", "--as-pid-1", *mounts, *files, "--chdir", "/tmp", *words],
            env=given | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def first_line(self) -> bytes:
        assert self.process.stdout
        return self.process.stdout.readline()

    def tell_to_end(self) -> None:
        """As the kubelet does: only the first process hears it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGTERM)

    def end(self) -> tuple[int, str, Note]:
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output.decode(), read_note(self.note.read_text())


@contextmanager
def container(place: Path, launch: Launch, **env: str) -> Iterator[Container]:
    made = Container(place, launch, **env)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        if made.process.stdout:
            made.process.stdout.close()


def ran(place: Path, run: str | tuple[str, ...], **fields: Any) -> tuple[int, str, Note]:
    with container(place, a_launch(run, **fields)) as made:
        return made.end()


def test_the_code_of_the_script_is_the_code_of_the_container(place: Path) -> None:
    code, output, note = ran(place, "echo out; echo err >&2; exit 7")
    assert (code, output, note.phase, note.code, note.ended) == (7, "out\nerr\n", "run", 7, "")
    assert note.peak is None or note.peak > 0


def test_a_signal_is_told_as_128_and_its_number_and_bash_says_nothing_of_it(place: Path) -> None:
    assert ran(place, "kill -SEGV $$")[:2] == (139, "")


def test_an_exit_that_looks_like_a_signal_of_ours_is_none(place: Path) -> None:
    assert ran(place, "exit 138")[0] == 138


def test_bash_counts_the_lines_of_the_users_own_script(place: Path) -> None:
    code, output, _ = ran(place, "true\nnosuchprogram\n", setup="\n\nnosuchthing || true")
    assert code == 127
    assert output == "bash: line 3: nosuchthing: command not found\nbash: line 2: nosuchprogram: command not found\n"


def test_nothing_of_ours_is_left_in_the_users_shell(place: Path) -> None:
    script = "declare -F; compgen -v penstock; echo $# $0 $SECONDS; ls /proc/self/fd | tr '\\n' ' '; trap"
    assert ran(place, script)[1] == "0 bash 0\n0 1 2 3 "


def test_what_runs_in_the_background_can_be_interrupted(place: Path) -> None:
    assert ran(place, "trap 'echo heard' INT; kill -INT $$; echo on")[1] == "heard\non\n"


def test_what_is_left_in_the_background_does_not_hold_the_container(place: Path) -> None:
    assert ran(place, "sleep 600 & echo done")[:2] == (0, "done\n")


@pytest.mark.parametrize(("setup", "code"), [("exit 0", 1), ("(exit 3)", 3), ("if", 2), ("set -u; $NOT_SET", 1)])
def test_a_setup_that_does_not_come_to_its_end_is_a_failure(place: Path, setup: str, code: int) -> None:
    found, _, note = ran(place, "echo not this", setup=setup)
    assert (found, note.phase) == (code, "setup")


def test_a_program_replaces_the_shell_where_one_is_needed_to_wait(place: Path) -> None:
    launch = a_launch(("printf", "%s,", "a b", "$HOME", ""), workdir_archive=Path("/sent"))
    with container(place, launch) as made:
        (made.marks / Path(ARRIVED).name).touch()
        assert made.end()[:2] == (0, "a b,$HOME,,")


# -- told to end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_told_to_end_everything_inside_can_save_its_work(place: Path, way: str) -> None:
    with container(place, a_launch(WAYS[way])) as made:
        first = made.first_line()
        made.tell_to_end()
        code, output, note = made.end()
    assert first.decode() + output == "up\nsaving\nsaved\n"
    assert (note.ended, note.phase, note.code) == ("stop", "run", code)


def test_told_to_end_what_ends_at_the_word_ends_at_once(place: Path) -> None:
    run = "sleep 600 | cat & (sleep 600; echo not this) & echo up; sleep 600 < <(sleep 600)"
    with container(place, a_launch(run)) as made:
        made.first_line()
        made.tell_to_end()
        assert made.end()[:2] == (143, "")


def test_told_to_end_while_it_waits_for_the_others_it_ends(place: Path) -> None:
    with container(place, a_launch("echo not this", nodes=2), SKYPILOT_NODE_IPS="no.such.host") as made:
        while b"peers" not in made.note.read_bytes():
            pass
        made.tell_to_end()
        code, output, note = made.end()
    assert (code, output, note.phase, note.ended) == (143, "", "peers", "stop")


def test_told_to_end_when_it_has_ended_and_stays_for_the_others_it_has_ended_well(place: Path) -> None:
    with container(place, a_launch("echo done", nodes=2), SKYPILOT_NODE_IPS="localhost") as made:
        while b'"code"' not in made.note.read_bytes():
            pass
        made.tell_to_end()
        code, output, note = made.end()
    assert (code, output, note.code, note.ended) == (0, "done\n", 0, "")


# -- its time ---------------------------------------------------------------------------------------------------------


def test_at_the_end_of_its_time_it_saves_its_work(place: Path) -> None:
    code, output, note = ran(place, WAYS["alone"], max_duration=1, stop_grace=600)
    assert (output, note.ended) == ("up\nsaving\nsaved\n", "time")
    assert code


def test_what_does_not_hear_is_killed_after_its_grace(place: Path) -> None:
    code, _, note = ran(place, "trap '' TERM; sleep 600", max_duration=1, stop_grace=1)
    assert (code, note.ended) == (137, "time")


def test_who_ends_well_after_the_time_was_over_has_not_succeeded(place: Path) -> None:
    run = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    assert ran(place, run, max_duration=1, stop_grace=60)[0] == 124


# -- what it waits for ------------------------------------------------------------------------------------------------


def test_no_node_begins_before_all_have_a_name(place: Path) -> None:
    with container(place, a_launch("echo ran", nodes=2), SKYPILOT_NODE_IPS="localhost\nlocalhost") as made:
        assert made.end()[:2] == (0, "ran\n")


def test_a_node_that_never_shows_is_not_waited_for_forever(place: Path) -> None:
    """By then the server would have given all places back; one that came and went is no reason to wait."""
    with container(place, a_launch("echo ran; exit 4", nodes=2), SKYPILOT_NODE_IPS="no.such.host") as made:
        assert made.end()[:2] == (4, "ran\n")


def test_it_waits_for_its_code(place: Path) -> None:
    with container(place, a_launch("echo ran", workdir_archive=Path("/sent"))) as made:
        while b"upload" not in made.note.read_bytes():
            pass
        (made.marks / Path(ARRIVED).name).touch()
        assert made.end()[:2] == (0, "ran\n")


def test_code_that_cannot_be_unpacked_is_said(place: Path) -> None:
    with container(place, a_launch("echo ran", workdir_archive=Path("/sent"))) as made:
        (made.marks / f"{Path(ARRIVED).name}.failed").write_text("tar: no room\n")
        code, output, note = made.end()
    assert (code, note.phase) == (125, "upload")
    assert output == "[penstock] The workdir could not be unpacked: tar: no room\n"


# -- what is written down ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "{}",
        "[]",
        '{"penstock": 1}',
        '{"penstock": {"phase": 3, "code": "x", "ended": [], "peak": "y"}}',
        "[" * 4090,
        '{"penstock": {"code": true, "peak": 1' + "0" * 3999 + "}}",
    ],
)
def test_a_message_that_is_not_ours_says_nothing(text: str) -> None:
    assert read_note(text) == Note()


def test_a_message_of_ours_is_read() -> None:
    text = json.dumps({"penstock": {"phase": "setup", "code": 3, "ended": "stop", "peak": 4096}})
    assert read_note(f"{text}\n") == Note("setup", 3, "stop", 4096)


def test_kubernetes_puts_no_variables_into_what_the_user_wrote() -> None:
    assert verbatim("$(HOME) $$ $") == "$$(HOME) $$$$ $$"
    program = ("sh", "-c", "echo $(date) $$")
    assert command(a_launch(program), 0) == ["sh", "-c", "echo $$(date) $$$$"]
    assert not needs_bash(a_launch(program))
    assert needs_bash(a_launch(program, nodes=2))
