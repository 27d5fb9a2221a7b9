"""File changes as events of the loop: one inotify descriptor, no thread and no polling."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

MODIFY, CREATE, MOVED_TO = 0x2, 0x100, 0x80
ONLYDIR, ONESHOT = 0x01000000, 0x80000000
OVERFLOW, IGNORED = 0x4000, 0x8000
_HEADER = struct.Struct("iIII")


class Inotify:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")
        self._called: dict[int, Callable[[], None]] = {}
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def watch(self, directory: Path, call: Callable[[], None]) -> int | None:
        """Call whenever a file in the directory is made, moved there or written; None if it cannot be watched."""
        return self._add(directory, call, MODIFY | CREATE | MOVED_TO | ONLYDIR)

    def watch_once(self, directory: Path, call: Callable[[], None]) -> int | None:
        """Call when something is next written; that a file is made, still empty, is no news to a reader."""
        return self._add(directory, call, MODIFY | ONESHOT | ONLYDIR)

    def _add(self, directory: Path, call: Callable[[], None], mask: int) -> int | None:
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


class Bell:
    """Wakes those who follow one run's logs.

    The watch fires once; those who wait are woken, at once if it was quiet and otherwise after a pause, and only then
    is it set again. So a job that prints all the time costs a few wake-ups a second, however much it prints.
    """

    PAUSE, CROWD, CROWDED_PAUSE = 0.05, 50, 0.2

    def __init__(self, inotify: Inotify, directory: Path) -> None:
        self._inotify, self._directory = inotify, directory
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._wd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")
        self.turn = 0
        """Grows with every ring: read it, look at the files, then wait for the next."""
        self.followers = 0
        self.closed = False
        """Nothing more will come: the run was removed."""
        self._arm()

    def _arm(self) -> None:
        self._wd = self._inotify.watch_once(self._directory, self._heard)
        if self._wd is None and self._timer is None and self._directory.is_dir():
            self._timer = self._loop.call_later(self.CROWDED_PAUSE, self.ring)  # the kernel is out of watches

    def _heard(self) -> None:
        self._wd = None
        pause = self.CROWDED_PAUSE if self.followers > self.CROWD else self.PAUSE
        wait = self._last + pause - self._loop.time()
        if wait <= 0:
            self._ring_for_news()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait, self._ring_for_news)

    def _ring_for_news(self) -> None:
        self._last = self._loop.time()
        self.ring()

    def ring(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._wd is None:
            self._arm()
        self.turn += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def next(self, turn: int) -> None:
        """Return once it has rung since `turn`."""
        if self.turn != turn or self.closed:
            return
        future = self._loop.create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def close(self) -> None:
        self._inotify.unwatch(self._wd)
        if self._timer:
            self._timer.cancel()
