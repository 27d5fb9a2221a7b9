"""An engine to try, and what is left on the machine after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[LocalEngine]:
    """An open engine; what still runs at the end is ended."""
    engine = LocalEngine(settings)
    await engine.open()
    try:
        yield engine
    finally:
        for run in await engine.runs():
            await engine.remove(run)
        await engine.close()


def processes_with(mark: str) -> list[int]:
    """Every process that has the text on its command line, in its environment or among what is mounted for it."""
    numbers = [folder.name for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [int(number) for number in numbers if mark.encode() in _about(Path("/proc") / number)]


def _about(folder: Path) -> bytes:
    found = b""
    for name in ("cmdline", "environ", "mountinfo"):
        with suppress(OSError):
            found += (folder / name).read_bytes()
    return found
