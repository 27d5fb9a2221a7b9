"""A process that keeps the logs of a namespace, made to be killed: arguments are directory, namespace and rig."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.engines.kubernetes.observed import observed
from tests.rig.cluster import Rig


async def keep(place: Path, namespace: str, rig_name: str) -> None:
    rig = Rig.find(rig_name)
    assert rig
    async with observed(rig, namespace, place):
        print("open", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(keep(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
