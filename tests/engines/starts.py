"""A server that only starts one launch; tests kill it while it does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from penstock.engines.base import Launch
from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings


async def main(place: Path, text: str) -> None:
    engine = LocalEngine(Settings(data_dir=place / "data", gpu_lock_dir=place / "locks"))
    await engine.open()
    print("starting", flush=True)
    await engine.start(Launch.model_validate_json(text))
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
