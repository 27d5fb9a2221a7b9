"""Two servers on a machine with GPUs of our making; run by the tests with the fake library on its path."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from penstock.engines.base import DevicesBusy
from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.contract.nodes import opened
from tests.engines.launches import a_launch, ended, log_of, outcome, printed, run_of


async def taken(engine: LocalEngine) -> list[bool]:
    return [gpu.taken_elsewhere for gpu in (await engine.nodes())[0].gpus]


async def main(place: Path) -> None:
    found: dict[str, object] = {}
    ours, theirs = (Settings(data_dir=place / name, gpu_lock_dir=place / "locks") for name in ("ours", "theirs"))
    async with opened(ours) as first, opened(theirs) as second:
        gpus = (await first.nodes())[0].gpus
        found["products"] = [gpu.product for gpu in gpus]
        uuids = [gpu.uuid for gpu in gpus]
        script = "echo $CUDA_VISIBLE_DEVICES; ls /dev | grep nvidia; echo up; sleep 600"
        launch = a_launch(script, gpus=((uuids[1],),), resources={"gpus": 1})
        await first.start(launch)
        await printed(first, run_of(launch), "up")
        found["log"] = (await log_of(first, run_of(launch))).decode()
        found["taken"] = [await taken(first), await taken(second)]
        found["busy"] = await busy(second, uuids[1])
        adopted = LocalEngine(ours)
        await adopted.open()
        found["adopted"] = await taken(adopted)
        await adopted.close()
        await first.stop(run_of(launch), 0)
        await ended(first, run_of(launch))
        report, _ = await outcome(second, a_launch("true", gpus=((uuids[1],),), resources={"gpus": 1}))
        found["afterwards"] = report.units[0].state
        found["none"] = (await outcome(first, a_launch('echo "[$CUDA_VISIBLE_DEVICES]"; ls /dev | grep nvidia; true')))[
            1
        ]
    print(json.dumps(found))


async def busy(engine: LocalEngine, uuid: str) -> list[str]:
    try:
        await engine.start(a_launch("true", gpus=((uuid,),)))
    except DevicesBusy as error:
        return list(error.uuids)
    return []


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
