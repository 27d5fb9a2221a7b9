"""What nvidia-smi says of a host's GPUs: in a container of ours, for in a user's own it may be any program.

NVIDIA's container toolkit puts it into containers that ask for GPUs. Which processes compute on them it does not see
there: it knows only those of its own container by their numbers.
"""

from __future__ import annotations

import csv
from typing import NamedTuple

from penstock.domain.nodes import Gpu
from penstock.engines.docker.api import Api, Fields
from penstock.engines.docker.helping import helped
from penstock.wire import GpuMeasure

QUERY = "index,uuid,name,memory.total,memory.used,utilization.gpu"
LOOK = ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
ALL = {"DeviceRequests": [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu", "utility"]]}]}
MEBIBYTE = 1 << 20


class Reading(NamedTuple):
    gpu: Gpu
    utilization: int | None
    """Percent; None where this product does not tell it."""

    @property
    def measure(self) -> GpuMeasure:
        return GpuMeasure(
            uuid=self.gpu.uuid,
            product=self.gpu.product,
            memory_bytes=self.gpu.memory_bytes,
            memory_used_bytes=self.gpu.memory_used_bytes,
            utilization=self.utilization,
        )


def is_installed(info: Fields) -> bool:
    """NVIDIA's toolkit, as the engine tells it."""
    return "nvidia" in (info.get("Runtimes") or {})


async def readings(api: Api, image: str, installation: str) -> tuple[Reading, ...]:
    """Of all its GPUs, now; raises where that cannot be seen."""
    return read_table(await helped(api, image, installation, LOOK, config=ALL))


def read_table(text: str) -> tuple[Reading, ...]:
    """What a GPU does not tell is `[N/A]`."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    return tuple(_read(row) for row in rows if len(row) == 6 and row[0].isdecimal() and row[3].isdecimal())


def _read(row: list[str]) -> Reading:
    number, uuid, product, memory, used, percent = row
    gpu = Gpu(
        uuid=uuid,
        product=product,
        minor=int(number),
        memory_bytes=int(memory) * MEBIBYTE,
        memory_used_bytes=int(used) * MEBIBYTE if used.isdecimal() else None,
    )
    return Reading(gpu, int(percent) if percent.isdecimal() else None)
