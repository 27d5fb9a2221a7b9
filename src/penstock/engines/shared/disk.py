"""Tell how much of the server's disk is free, and refuse new work when it is nearly full."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.domain.quantities import parse_bytes, show_bytes
from penstock.errors import StorageFull
from penstock.settings import Settings
from penstock.wire.server import Check

MARK, SHARE = 1 << 30, 20
"""Without `min_free`, the mark is so many bytes, but no more than a twentieth of the disk."""
LEAST = 1 << 20
"""The lowest mark there is: a job cannot be started with less."""


@dataclass(frozen=True)
class Disk:
    place: Path
    free: int
    mark: int

    @property
    def is_short(self) -> bool:
        return self.free < self.mark

    def refuse_new_work(self) -> None:
        if self.is_short:
            raise StorageFull(
                f"The disk of the server is almost full ({self._left}); {self._rule}.",
                hint="penstock volumes df shows what volumes hold; stop and delete what is not needed: "
                "penstock jobs stop, penstock jobs delete, penstock volumes delete.",
            )

    def said(self) -> str:
        """Return the reason shown to workloads that wait; it stays the same while the disk is full."""
        return f"has an almost full disk, and {self._rule}"

    def check(self) -> Check:
        if not self.is_short:
            return Check(name="disk", ok=True, detail=self._left)
        fix = "make room there (penstock volumes df, penstock jobs delete), or set data_dir to a larger disk"
        return Check(name="disk", ok=False, detail=f"{self._left}; {self._rule}", fix=fix)

    @property
    def _left(self) -> str:
        return f"{show_bytes(self.free)} free in {self.place}"

    @property
    def _rule(self) -> str:
        return f"below {show_bytes(self.mark)} it takes no new work (min_free)"


def disk_of(settings: Settings) -> Disk:
    about = os.statvfs(settings.data_dir)
    usual = min(MARK, about.f_blocks * about.f_frsize // SHARE)
    mark = max(parse_bytes(settings.min_free), LEAST) if settings.min_free else usual
    return Disk(settings.data_dir, about.f_bavail * about.f_frsize, mark)
