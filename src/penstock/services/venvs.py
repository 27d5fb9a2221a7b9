"""The caller's active virtual environment: taken along where it can be, said where it cannot."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.domain.names import shorten
from penstock.domain.users import Caller, Proof
from penstock.services.accounts import root_account
from penstock.settings import Settings

HIDDEN = ("/proc", "/sys", "/dev", "/run")


def usable_venv(given: str | None, caller: Caller, settings: Settings) -> tuple[str | None, tuple[str, ...]]:
    """The path to bind, or None and the sentence that says why not."""
    if not given:
        return None, ()
    path = Path(given)
    why = _why_not(path, caller, settings)
    if why is None:
        return os.path.normpath(path), ()
    return None, (f"The virtual environment {shorten(given)} is not there in the job: {why}.",)


def _why_not(path: Path, caller: Caller, settings: Settings) -> str | None:
    if settings.engine != "local":
        return "it is on another machine than the job, which has what its image has"
    if caller.proof is not Proof.socket or (settings.mode == "user" and caller.uid != os.geteuid()):
        # Nothing may be said here that tells whether it is there.
        return (
            "only who asks over the server's socket on this machine, as the account that the job runs as, can bring one"
        )
    if not path.is_absolute() or "\0" in str(path) or ".." in path.parts or str(path).startswith(HIDDEN):
        return "its path cannot be used"
    if settings.mode == "system" and caller.uid not in (None, 0) and caller.uid == root_account(settings).uid:
        return "the account that runs root's work may not bring one"
    if caller.uid != os.geteuid():
        return None  # the engine looks, with the rights of the account
    try:
        if not (path / "pyvenv.cfg").is_file():
            return "there is no pyvenv.cfg in it"
    except OSError:
        return "it cannot be read"
    return None
