"""Measure what a host's disk has free, and say when it is too full for new work.

Docker does not say: a small container looks. It looks when the host is reached, when a job has failed there, when a
start has had no room, when somebody asks what volumes hold, and as long as there is too little.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.background import Tasks
from penstock.domain.quantities import show_bytes
from penstock.engines.docker.api.errors import DockerError, is_disk_full
from penstock.engines.docker.helpers import Helpers

log = logging.getLogger(__name__)
MARK, SHARE = 1 << 30, 20
"""Nothing starts where less than this many bytes are free, or less than a twentieth of a smaller disk."""
KIBIBYTE = 1024
SECONDS = 10.0
"""The pause between two looks at a disk that is full."""
FIX = "penstock volumes df; penstock jobs delete; penstock volumes delete; on the host: docker system prune"


class DiskSpace:
    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self.free: int | None = None
        """Bytes, as last seen; None: not seen yet."""
        self._total = 0
        self._doubted = False
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    @property
    def full(self) -> str | None:
        """Why nothing new starts on the host, as the rest of a sentence that begins with its name."""
        mark = min(MARK, self._total // SHARE)
        if self.free is None or self.free > mark:
            return None
        of = f" of {show_bytes(self._total)}" if self._total else ""
        return (
            f"has a full disk ({show_bytes(self.free)}{of} free): nothing new starts there until room is made ({FIX})"
        )

    def doubt(self) -> None:
        """Look soon whether the disk is full, and as long as it is."""
        self._doubted = True
        if "look" not in self._tasks:
            self._tasks.start(self._look_until_free(), "look")

    async def _look_until_free(self) -> None:
        while self._doubted or self.full:
            self._doubted = False
            try:
                await self.look()
            except DockerError as error:
                log.info("the free disk space of %s cannot be measured: %s", self._helpers.host, error.message)
            await asyncio.sleep(SECONDS)

    async def look(self) -> None:
        try:
            said = await self._helpers.run(["df", "-Pk", "/"])
        except DockerError as error:
            if not is_disk_full(error):
                raise
            self.free = 0
            return
        _, total, _, free, *_ = said.splitlines()[-1].split()
        self._total, self.free = int(total) * KIBIBYTE, int(free) * KIBIBYTE
