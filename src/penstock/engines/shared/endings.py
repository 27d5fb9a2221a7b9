"""How a unit ended: state, reason, sentence and exit code, in the same words wherever its container ran."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.domain.quantities import show_bytes, show_duration
from penstock.domain.states import Reason, State
from penstock.engines.shared.exit_codes import describe, mebibytes
from penstock.engines.shared.minder import FAILURES

NOT_EXECUTABLE_CODE, NOT_FOUND_CODE = 126, 127
TIME_CODE = 124
"""What `timeout` ends with: whoever waits for a workload must not take it for a success."""
_PROGRAM = re.compile(r'exec: \\?"(.*?)\\?":')
_PASSED_ON = re.compile(
    r"^(?:failed to (?:create|start) (?:shim |containerd )?task(?: for container)?|OCI runtime create failed"
    r"|runc create failed|unknown|unable to start container process|container_linux\.go:\d+"
    r"|starting container process caused|error during container init|process_linux\.go:\d+"
    r"|container init caused)[:,]? "
)


@dataclass(frozen=True)
class UnitEnd:
    state: State
    reason: Reason
    message: str | None = None
    exit_code: int | None = None


def ended_by_itself(code: int, phase: str) -> UnitEnd:
    """Judge a program that nobody told to end, by the phase that the minder noted."""
    if not code:
        return UnitEnd(State.EXITED, Reason.FINISHED, None, 0)
    if phase in FAILURES:
        return UnitEnd(State.CRASHED, Reason.LAUNCH_FAILED, FAILURES[phase], code)
    if phase == "setup":
        said = f"setup ended with {describe(code)}; run did not start."
        return UnitEnd(State.CRASHED, Reason.SETUP_FAILED, said, code)
    return UnitEnd(State.CRASHED, Reason.PROGRAM_FAILED, f"run ended with {describe(code)}.", code)


def over_time(limit: int | None, code: int | None) -> UnitEnd:
    shown = f" ({show_duration(limit)})" if limit else ""
    return UnitEnd(State.CRASHED, Reason.TIME_LIMIT, f"It ran longer than max_duration{shown}.", code or TIME_CODE)


def out_of_memory(node: str, limit: int, peak: int | None, code: int) -> UnitEnd:
    """`limit` 0: it had none, so its node had no memory left."""
    used = f"; it used up to {mebibytes(peak)}" if peak else ""
    said = f"It went over its memory limit of {show_bytes(limit)}" if limit else f"Its node {node} ran out of memory"
    return UnitEnd(State.CRASHED, Reason.OUT_OF_MEMORY, f"{said}{used}.", code)


def not_started(error: str, where: str = "", code: int | None = None) -> UnitEnd:
    """Judge a runtime's error about a program it could not start, with the code a shell would have ended with."""
    program, said = _PROGRAM.search(error), strip_runtime_names(error)
    if program and any(words in error for words in ("not found in $PATH", "no such file or directory")):
        message = f"The program {program[1]} was not found in the image."
        return UnitEnd(State.CRASHED, Reason.LAUNCH_FAILED, message, NOT_FOUND_CODE)
    if program:
        message = f"The program {program[1]} cannot be executed: {said.rpartition(': ')[2]}."
        return UnitEnd(State.CRASHED, Reason.LAUNCH_FAILED, message, NOT_EXECUTABLE_CODE)
    return UnitEnd(State.CRASHED, Reason.LAUNCH_FAILED, f"Its container could not be started{where}: {said}.", code)


def strip_runtime_names(message: str) -> str:
    """Return what a container runtime says without the names of all that passed it on."""
    while found := _PASSED_ON.match(message):
        message = message[found.end() :]
    return message.removesuffix(": unknown").rstrip(".")
