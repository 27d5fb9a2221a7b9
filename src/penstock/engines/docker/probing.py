"""What an engine does not tell of its machine: which CPUs and GPUs it has. A small container looks."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

from penstock.domain.nodes import Gpu
from penstock.engines.docker.api import Api
from penstock.engines.docker.failures import ApiError
from penstock.engines.docker.helping import helped

_MODEL = re.compile(r"^model name\s*:\s*(.+?)\s*$", re.MULTILINE)
QUERY = "index,uuid,name,memory.total,memory.used"
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Probe:
    known: bool = False
    cpu_product: str = ""
    gpus: tuple[Gpu, ...] = ()


async def probe(api: Api, image: str, installation: str) -> Probe:
    text = await helped(api, image, installation, ["cat", "/proc/cpuinfo"])
    model = _MODEL.search(text)
    return Probe(True, model[1] if model else "", await _gpus(api, image, installation))


async def _gpus(api: Api, image: str, installation: str) -> tuple[Gpu, ...]:
    """Where NVIDIA's runtime is installed it puts nvidia-smi into containers that ask for GPUs."""
    if "nvidia" not in ((await api.info()).get("Runtimes") or {}):
        return ()
    words = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    asked = {"DeviceRequests": [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu", "utility"]]}]}
    try:
        return read_gpus(await helped(api, image, installation, words, config=asked))
    except ApiError:
        return ()


def read_gpus(text: str) -> tuple[Gpu, ...]:
    """Of nvidia-smi's table."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    return tuple(
        Gpu(
            uuid=row[1],
            product=row[2],
            minor=int(row[0]),
            memory_bytes=int(row[3]) * MEBIBYTE,
            memory_used_bytes=int(row[4]) * MEBIBYTE if row[4].isdecimal() else None,
        )
        for row in rows
        if len(row) == 5 and row[0].isdecimal() and row[3].isdecimal()
    )
