"""Wait through a server's restart or death: ask again for up to two minutes.

It is waited for, never started: whoever stopped it had a reason, and the jobs go on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic, sleep
from typing import TypeVar

from penstock.client.api import Client
from penstock.errors import Unreachable

SECONDS = 120.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
AWAY = "The server went away; waiting for it (the job goes on)."

T = TypeVar("T")


class ServerWait:
    """Waits for a server that goes away; `say` is called once each time."""

    def __init__(self, client: Client, say: Callable[[str], None], seconds: float = SECONDS) -> None:
        client.stay()
        self._say = say
        self._seconds = seconds
        self._away = False
        self.absences = 0
        """How often the server has been away."""

    def ask(self, question: Callable[[], T], until: float = inf) -> T:
        """Return the answer of this server or its successor; `until` is a time.monotonic."""
        left_at = None
        pause = FIRST_PAUSE
        while True:
            try:
                answer = question()
            except Unreachable as error:
                self.broke()
                left_at = left_at or monotonic()
                left = min(left_at + self._seconds, until) - monotonic()
                if left <= 0:
                    raise _not_back(error, monotonic() - left_at) from error
                sleep(min(pause, left))
                pause = min(pause * 1.5, LONGEST_PAUSE)
            else:
                self._away = False
                return answer

    def broke(self) -> None:
        """Note that the server broke off, here or in a response that was being read."""
        if not self._away:
            self._away = True
            self.absences += 1
            self._say(AWAY)


def _not_back(error: Unreachable, seconds: float) -> Unreachable:
    hint = f"the jobs go on; {error.hint}" if error.hint else "the jobs go on"
    return Unreachable(f"The server did not come back within {seconds:.0f}s: {error.message}", hint=hint)
