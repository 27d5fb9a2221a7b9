"""How a unit ended, in the words that engines share."""

from __future__ import annotations

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.shared.endings import ended_by_itself, not_started, out_of_memory, over_time


@pytest.mark.parametrize(
    ("code", "phase", "reason", "message"),
    [
        (0, "run", Reason.FINISHED, None),
        (3, "run", Reason.PROGRAM_FAILED, "run ended with code 3."),
        (3, "setup", Reason.SETUP_FAILED, "setup ended with code 3; run did not start."),
        (125, "peers", Reason.LAUNCH_FAILED, "It ended while it waited for the other nodes."),
    ],
)
def test_a_program_that_ended_by_itself(code: int, phase: str, reason: Reason, message: str | None) -> None:
    end = ended_by_itself(code, phase)
    assert (end.reason, end.message, end.exit_code) == (reason, message, code)
    assert end.state is (State.CRASHED if code else State.EXITED)


def test_one_whose_time_was_over_is_no_success() -> None:
    assert over_time(90, 0).exit_code == 124
    assert over_time(None, 143).message == "It ran longer than max_duration."


def test_of_memory_it_is_said_how_much_there_was_and_how_much_was_used() -> None:
    end = out_of_memory("lab-1", 48 << 20, 47 << 20, 137)
    assert end.message == "It went over its memory limit of 48Mi; it used up to 47Mi."
    assert out_of_memory("lab-1", 0, None, 137).message == "Its node lab-1 ran out of memory."


@pytest.mark.parametrize(
    "error",
    [
        'OCI runtime create failed: container_linux.go:380: starting container process caused: exec: "nosuch": '
        "executable file not found in $PATH: unknown",
        "failed to create task for container: failed to create shim task: OCI runtime create failed: "
        "runc create failed: unable to start container process: error during container init: "
        'exec: "nosuch": executable file not found in $PATH: unknown',
    ],
)
def test_a_program_that_is_not_there_is_named_whatever_docker_says_around_it(error: str) -> None:
    end = not_started(error)
    assert (end.message, end.exit_code) == ("The program nosuch was not found in the image.", 127)


def test_one_that_cannot_be_executed_says_why() -> None:
    end = not_started('runc create failed: exec: "/etc/hosts": permission denied: unknown')
    assert (end.message, end.exit_code) == ("The program /etc/hosts cannot be executed: permission denied.", 126)
