"""What of a log was shown already, so that the same log read from its start goes on where it broke off."""

from __future__ import annotations

from collections import Counter
from typing import Protocol


class Shown(Protocol):
    def again(self) -> None:
        """The log comes from its start once more."""

    def fresh(self, piece: bytes) -> bytes:
        """What of the next piece was not shown yet."""

    def rest(self) -> bytes:
        """What was held back, at the log's end."""


class ShownBytes:
    """Of one node: its bytes come in the same order each time."""

    def __init__(self) -> None:
        self._shown = 0
        self._skip = 0

    def again(self) -> None:
        self._skip = self._shown

    def fresh(self, piece: bytes) -> bytes:
        known = min(self._skip, len(piece))
        self._skip -= known
        self._shown += len(piece) - known
        return piece[known:]

    def rest(self) -> bytes:
        return b""


class ShownLines:
    """Of several nodes: only the lines of each node, by its `node-<i> | `, come in the same order each time."""

    def __init__(self) -> None:
        self._shown: Counter[bytes] = Counter()
        self._passed: Counter[bytes] = Counter()
        self._held = b""

    def again(self) -> None:
        self._passed.clear()
        self._held = b""

    def fresh(self, piece: bytes) -> bytes:
        *lines, self._held = (self._held + piece).split(b"\n")
        return b"".join(line + b"\n" for line in lines if self._is_fresh(line))

    def _is_fresh(self, line: bytes) -> bool:
        node = line.partition(b" | ")[0]
        self._passed[node] += 1
        if self._passed[node] <= self._shown[node]:
            return False
        self._shown[node] += 1
        return True

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held
