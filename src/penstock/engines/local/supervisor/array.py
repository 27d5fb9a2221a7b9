"""Run the indexes of an array: a place takes the next one when nothing of the last is left in it.

However long an array is, only the indexes that run take up room here and on the disk.
"""

from __future__ import annotations

import errno
import os
import time

from penstock.engines.shared.files import complain

from .directories import erase, make_folder
from .processes import fork_child, remove_group
from .start import start_node

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from typing import Any

    from .start import Started

TRIES = 20
"""How often the start of an index is tried: there may be no process to be had for a moment."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors that do not count as a try: the index waits until the disk has room."""
PAUSE = 1.0
"""Seconds between two tries."""


class IndexQueue:
    def __init__(self, plan: dict[str, Any], tree: int) -> None:
        self._places: list[dict[str, Any]] = plan["ranks"]
        self._indexes: list[int] = plan["array"]
        self._tree = tree
        self._next = len(self._places)
        self._again: list[tuple[int, int]] = []
        """Indexes that could not be started, and how often they were tried."""
        self._cleaners: dict[int, tuple[int, int]] = {}
        """The handle on a process that cleans a place → that process, and the place."""
        self._clean: list[int] = []
        if self._places[0]["kept"]:
            from . import keeper  # noqa: F401  (now: an upgrade may put another in its place before the next index)

    @property
    def handles(self) -> list[int]:
        return list(self._cleaners)

    @property
    def ready(self) -> bool:
        """Is there a clean place, which may take an index?"""
        return bool(self._clean)

    @property
    def busy(self) -> bool:
        return bool(self._cleaners or self._clean)

    def clean(self, place: int, pause: float = 0.0) -> None:
        """Clean the place of an index that has ended, which may take long."""
        plan = self._places[place]
        try:
            pid = fork_child(lambda: _clean(plan, pause))
            self._cleaners[os.pidfd_open(pid)] = (pid, place)
        except OSError:  # no process to be had: then everything waits
            _clean(plan, PAUSE)
            self._clean.append(place)

    def cleaned(self) -> None:
        """Take note of the places that are clean by now."""
        for handle, (pid, place) in list(self._cleaners.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                os.close(handle)
                del self._cleaners[handle]
                self._clean.append(place)

    def take(self) -> tuple[int, int, int] | None:
        """Return a free place, the next index, and how often that was tried; None if there is no such pair."""
        if not self._clean:
            return None
        if self._again:
            return (self._clean.pop(), *self._again.pop())
        if self._next == len(self._indexes):
            self._clean.clear()
            return None
        self._next += 1
        return self._clean.pop(), self._indexes[self._next - 1], 0

    def start(self, place: int, index: int) -> Started:
        plan = self._places[place]
        make_folder(plan["folder"], plan["make"], plan["owner"])
        return start_node(plan, self._tree, index)

    def put_back(self, place: int, index: int, tries: int, error: OSError) -> bool:
        """Put an index back that could not be started; False if it was tried often enough."""
        tries += error.errno not in FULL
        last = tries >= TRIES
        if not last:
            self._again.append((index, tries))
        self.clean(place, PAUSE)
        return not last

    def stop(self) -> None:
        """Start no further index."""
        self._next = len(self._indexes)
        self._again.clear()


def _clean(plan: dict[str, Any], pause: float) -> None:
    for group in plan["cgroups"]:
        remove_group(group["path"])
    try:
        erase(plan["folder"])
    except OSError as error:  # what is left keeps the next index from starting, and that is said
        complain(error)
    time.sleep(pause)
