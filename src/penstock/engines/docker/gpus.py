"""Look at a host's CPUs and GPUs from a small container, since Docker does not tell of them.

NVIDIA's container toolkit puts it into containers that ask for GPUs. Whose processes compute on them it does not see
there: their numbers mean nothing in a container, and some drivers do not even count them. So a GPU is somebody else's
if a process is counted on it, or much of its memory is in use, while no container of ours has it.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.domain.model import now
from penstock.domain.nodes import Gpu
from penstock.engines.docker.api.client import Fields
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.helpers import Helpers
from penstock.wire.measures import GpuMeasure

QUERY = "index,uuid,name,memory.total,memory.used,utilization.gpu"
TABLE = "--format=csv,noheader,nounits"
PROCESSES = f"nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory {TABLE}"
LOOK = ("sh", "-c", f"nvidia-smi --query-gpu={QUERY} {TABLE} && {{ {PROCESSES} || :; }}")
ALL = {"DeviceRequests": [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu", "utility"]]}]}
MEBIBYTE = 1 << 20
UNUSED = 1 << 30
"""Bytes that a driver may keep on a GPU which nobody uses."""


class HostGpuReading(NamedTuple):
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


def has_nvidia(info: Fields) -> bool:
    """Does the host have NVIDIA's container toolkit?"""
    return "nvidia" in (info.get("Runtimes") or {})


async def read_gpus(helpers: Helpers) -> tuple[HostGpuReading, ...]:
    """Look at all GPUs of a host now; raise where they cannot be seen."""
    return read_table(await helpers.run(LOOK, config=ALL))


def read_table(text: str) -> tuple[HostGpuReading, ...]:
    """Read a table of GPUs, then of processes. What a GPU does not tell is `[N/A]`."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    running = Counter(row[0] for row in rows if len(row) == 3)
    gpus = [row for row in rows if len(row) == 6 and row[0].isdecimal() and row[3].isdecimal()]
    return tuple(_read(row, running[row[1]]) for row in gpus)


def gpus_in_use(containers: Iterable[ContainerRecord]) -> set[str]:
    """Return the GPUs of our containers that run."""
    return {uuid for seen in containers if seen.runs for uuid in seen.gpus}


def without_own_use(gpus: Iterable[Gpu], ours: set[str]) -> tuple[Gpu, ...]:
    """Take what is in use on a GPU of ours to be in use by us."""
    return tuple(gpu.model_copy(update={"outside": ""}) if gpu.uuid in ours else gpu for gpu in gpus)


def _read(row: list[str], processes: int) -> HostGpuReading:
    number, uuid, product, memory, used, percent = row
    memory_used = int(used) * MEBIBYTE if used.isdecimal() else None
    gpu = Gpu(
        uuid=uuid,
        product=product,
        minor=int(number),
        memory_bytes=int(memory) * MEBIBYTE,
        memory_used_bytes=memory_used,
        outside=_in_use(processes, memory_used or 0),
        last_seen=now(),
    )
    return HostGpuReading(gpu, int(percent) if percent.isdecimal() else None)


def _in_use(processes: int, memory: int) -> str:
    """Say what is in use on a GPU; empty: nothing, as far as can be told."""
    if not processes and memory <= UNUSED:
        return ""
    said = [f"{processes} compute process{'es' if processes > 1 else ''}"] if processes else []
    return ", ".join([*said, f"{memory // MEBIBYTE} MiB in use"])


_MODEL = re.compile(r"^model name\s*:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class HostProbe:
    cpu_product: str = ""
    gpus: tuple[Gpu, ...] = ()
    gpu_trouble: str | None = None
    """Why they could not be looked at last, though NVIDIA's toolkit is there."""


async def probe(helpers: Helpers, info: Fields) -> HostProbe:
    model = _MODEL.search(await helpers.run(["cat", "/proc/cpuinfo"]))
    product = model[1] if model else ""
    if not has_nvidia(info):
        return HostProbe(product)
    try:
        return HostProbe(product, tuple(reading.gpu for reading in await read_gpus(helpers)))
    except DockerError as error:
        return HostProbe(product, gpu_trouble=error.message)
