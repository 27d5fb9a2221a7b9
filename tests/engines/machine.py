"""An engine to try, and what is left on the machine after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from penstock.engines.local import LocalEngine
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
    """Every process of the machine that has the text in its environment or on its command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found
