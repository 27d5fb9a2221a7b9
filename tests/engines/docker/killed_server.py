"""A server that only starts one launch, and is gone at a given call to Docker, before it or after it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Host
from penstock.engines.base import Launch, Presence, Run
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.engine import DockerEngine
from penstock.settings import Settings
from tests.engines.launches import observed

_ask = DockerApi._call


async def main(place: Path, address: str, text: str, number: int, when: str) -> None:
    settings = Settings(data_dir=place, engine="docker", docker_image="penstock-test:1")
    engine, launch = DockerEngine(settings), Launch.model_validate_json(text)
    await engine.open()
    await engine.use_hosts([Host(name="host-1", group="lab", address=address)])
    calls = 0

    async def call(self: DockerApi, method: str, path: str, *args: Any, **more: Any) -> Any:
        nonlocal calls
        writes = method != "GET"
        calls += writes
        is_the_one = writes and calls == number  # while it is answered there may be others
        if is_the_one and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await _ask(self, method, path, *args, **more)
        if is_the_one and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    DockerApi._call = call  # type: ignore[method-assign]
    await engine.start(launch)
    run = Run(launch.workload_id, launch.attempt)
    while (await observed(engine, run)).presence is not Presence.ended:
        await asyncio.sleep(0.01)
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]))
