"""Watch the directories of runs and their supervisors, and tell which runs changed.

A supervisor that is killed leaves no trace in any file. A handle on its process tells when to look; the lock, which its
sandboxes hold until the last of them is gone, tells what is true then.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.background import Tasks
from penstock.engines.base import Run
from penstock.engines.local.layout import Layout
from penstock.engines.local.runs import end_leftovers
from penstock.engines.local.state.snapshot import has_begun, has_ended, lock_is_held
from penstock.engines.shared.wakeup import Changes

PATIENCE = 1.0
"""Seconds in which the sandboxes of a killed supervisor end by themselves."""
INDEXES_A_PART = 10
"""An index of an array is a line in a file: so many of them take as long to read as one part elsewhere."""
MODIFY, CREATE, MOVED_TO = 0x2, 0x100, 0x80
ONLYDIR, ONESHOT = 0x01000000, 0x80000000
ANY_CHANGE = MODIFY | CREATE | MOVED_TO
NEXT_WRITE = MODIFY | ONESHOT
"""A file that is made, still empty, is no news to a reader."""
OVERFLOW, IGNORED = 0x4000, 0x8000
_HEADER = struct.Struct("iIII")


@dataclass
class WatchedRun:
    wd: int | None
    """None where the kernel is out of watches: then only the end of the supervisor is noticed."""
    indexes: int
    pidfd: int = -1


class RunWatcher:
    def __init__(self, layout: Layout, on_exit: Callable[[Run], None]) -> None:
        """`on_exit` is called when the supervisor of a run is gone, for whatever reason."""
        self._layout, self._on_exit = layout, on_exit
        self._inotify = Inotify()
        self._loop = asyncio.get_running_loop()
        self._watched: dict[Run, WatchedRun] = {}
        self._changes = Changes()
        self._tasks = Tasks()

    def add(self, run: Run, pid: int | None, indexes: int = 0) -> None:
        """Watch a run whose supervisor is `pid`, and which has so many indexes if it is an array."""
        if run in self._watched:
            return
        wd = self._inotify.watch(self._layout.run_dir(run), lambda: self._tell(run), ANY_CHANGE)
        watched = self._watched[run] = WatchedRun(wd, indexes)
        try:
            watched.pidfd = os.pidfd_open(pid or -1)
        except (OSError, ValueError):
            self._tasks.start(self._after_lock(run))
        else:
            self._loop.add_reader(watched.pidfd, self._gone, run)
        if has_ended(self._layout.run_dir(run)):  # it was quicker than we were
            self._tell(run)

    def await_began(self, run: Run, began: Callable[[Run], None]) -> None:
        """Wait for a start that another server had begun: `began` is called once it came to something or to nothing."""
        if run not in self._tasks:
            self._tasks.start(self._after_start(run, began), key=run)

    async def _after_start(self, run: Run, began: Callable[[Run], None]) -> None:
        await self._wait_for_lock(self._layout.run_dir(run), has_begun)
        began(run)
        self._tell(run)

    def drop(self, run: Run) -> None:
        if watched := self._watched.pop(run, None):
            self._inotify.unwatch(watched.wd)
            self._close(watched)

    async def close(self) -> None:
        await self._tasks.close()
        for run in list(self._watched):
            self.drop(run)
        self._inotify.close()

    def changes(self) -> AsyncIterator[Run]:
        return self._changes.follow()

    def _tell(self, run: Run) -> None:
        watched = self._watched.get(run)
        self._changes.tell(run, watched.indexes // INDEXES_A_PART if watched else 1)

    def _close(self, watched: WatchedRun) -> None:
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = -1

    def _gone(self, run: Run) -> None:
        if watched := self._watched.get(run):
            self._close(watched)
        self._tasks.start(self._after_lock(run))

    async def _wait_for_lock(self, run_dir: Path, over: Callable[[Path], bool]) -> None:
        """Wait until that is so, or nothing watches the run any more."""
        patience = self._loop.time() + PATIENCE
        while not over(run_dir) and lock_is_held(run_dir):
            await asyncio.sleep(0.02)  # the kernel tells nobody that a lock is free
            if self._loop.time() > patience:
                await asyncio.to_thread(end_leftovers, run_dir)

    async def _after_lock(self, run: Run) -> None:
        """Wait for the sandboxes of a killed supervisor, which end a moment after it. A result it wrote was noticed
        already."""
        run_dir = self._layout.run_dir(run)
        await self._wait_for_lock(run_dir, has_ended)
        watched = self._watched.get(run)
        if not watched or watched.wd is None or not has_ended(run_dir):
            self._tell(run)
        self._on_exit(run)


class Inotify:
    """File changes as events of the loop: one descriptor, no thread and no polling."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")
        self._called: dict[int, Callable[[], None]] = {}
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def watch(self, directory: Path, call: Callable[[], None], events: int) -> int | None:
        """Call when one of these events happens in the directory; None if it cannot be watched."""
        mask = events | ONLYDIR
        wd: int = self._libc.inotify_add_watch(self._fd, os.fsencode(directory), ctypes.c_uint32(mask))
        if wd < 0:
            return None
        self._called[wd] = call
        return wd

    def unwatch(self, wd: int | None) -> None:
        if wd is not None and wd in self._called:
            del self._called[wd]
            self._libc.inotify_rm_watch(self._fd, wd)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        position, heard, over = 0, set(), set()
        while position < len(data):
            wd, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            if mask & OVERFLOW:
                heard |= set(self._called)
            elif mask & IGNORED:
                over.add(wd)
            else:
                heard.add(wd)
        for wd in heard:
            if call := self._called.get(wd):
                call()
        for wd in over:
            self._called.pop(wd, None)
