"""The command of a container: the user's program as it is, or the minder.

Docker has no termination message: what the minder writes down stands in a file that is put into the container before it
starts, and fetched from it after its end.
"""

from __future__ import annotations

from penstock.engines.base import Launch
from penstock.engines.shared.minder import BASH as BASH
from penstock.engines.shared.minder import MINDER, PAYLOAD, PREPARE, needs_bash

NOTE = "/.penstock/note"
_TERMINATION_LOG = "/dev/termination-log"
AGAIN_CODE = 125
ONCE = f"[[ -s {NOTE} ]] && exit {AGAIN_CODE}"
"""What has run leaves a note: started once more, whoever did that, it does nothing."""
PEER_PATIENCE = 120
"""Seconds a node waits to see the others, which are started within moments of it."""


def command(launch: Launch) -> list[str]:
    """Empty: the image's own."""
    spec = launch.spec
    script, program = (spec.run, ()) if isinstance(spec.run, str) else ("", spec.run or ())
    if not minded(launch):
        return list(program)
    given = (
        str(spec.max_duration or 0),
        str(launch.stop_grace),
        PAYLOAD,
        PREPARE.replace(_TERMINATION_LOG, NOTE),
        str(PEER_PATIENCE),
        "",  # the user's code is there before it starts
        spec.setup or "",
        script,
    )
    return [BASH, "-c", f"{ONCE}\n{MINDER.replace(_TERMINATION_LOG, NOTE)}", "bash", *given, *program]


def minded(launch: Launch) -> bool:
    """Code that is sent along is there before the program starts: only the other two reasons of `needs_bash` count."""
    return needs_bash(launch.model_copy(update={"workdir_archive": None}))
