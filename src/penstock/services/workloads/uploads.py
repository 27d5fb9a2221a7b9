"""Keep files that a client sends along with a task, per user under a name nobody can guess."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

from penstock.domain.quantities import parse_bytes
from penstock.engines.shared.disk import disk_of
from penstock.errors import FilesNeeded, NotFound, StorageFull, TooLarge
from penstock.settings import Settings

ID = re.compile(r"[0-9a-f]{32}\Z")
KEPT_UNUSED = 24 * 3600
LOOKS = 1 << 24
"""How many bytes are written until the disk is looked at again."""


class Uploads:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place = settings.data_dir / "uploads"
        self._limit_text = settings.workdir_limit
        self.limit = parse_bytes(settings.workdir_limit)

    async def save(self, user: str, body: AsyncIterator[bytes]) -> str:
        """Write the body as it comes; nothing stays of one that is too large or breaks off."""
        self._refuse_full()
        upload_id = secrets.token_hex(16)
        final = self._path(user, upload_id)
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = final.with_suffix(".partial")
        try:
            await self._write(partial, body)
            partial.rename(final)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull("The disk of the server is full; nothing was kept.") from None
            raise
        finally:
            partial.unlink(missing_ok=True)
        return upload_id

    def _refuse_full(self) -> None:
        disk_of(self._settings).refuse_new_work()

    async def _write(self, partial: Path, body: AsyncIterator[bytes]) -> None:
        size = 0
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            async for chunk in body:
                size += len(chunk)
                if size // LOOKS != (size - len(chunk)) // LOOKS:
                    self._refuse_full()
                if size > self.limit:
                    raise TooLarge(
                        f"The packed workdir is larger than {self._limit_text}.",
                        hint="List what is not needed in .gitignore, or put data on a volume.",
                    )
                await asyncio.to_thread(file.write, chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())

    def needed(self, files: dict[str, str | None]) -> FilesNeeded:
        """Ask for local directories that a text names."""
        return FilesNeeded(
            "The workdir is a local directory and must be sent along.",
            hint="Send it with the command line, which does so.",
            files=files,
            limit_bytes=self.limit,
        )

    def path(self, user: str, upload_id: str) -> Path:
        path = self._path(user, upload_id)
        if not ID.match(upload_id) or not path.is_file():
            raise NotFound("The files sent for workdir no longer exist.", hint="Submit it again.")
        return path

    def _path(self, user: str, upload_id: str) -> Path:
        return self._place / user / upload_id

    async def prune(self, in_use: set[str]) -> None:
        """Remove what no active workload needs and nobody has used for a day."""

        def remove() -> None:
            for path in self._place.glob("*/*"):
                old = time.time() - path.stat().st_mtime > KEPT_UNUSED
                if old and path.name not in in_use:
                    path.unlink(missing_ok=True)

        await asyncio.to_thread(remove)
