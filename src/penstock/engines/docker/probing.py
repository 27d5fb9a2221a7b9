"""What an engine does not tell of its machine: which CPUs and GPUs it has. A small container looks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.domain.nodes import Gpu
from penstock.engines.docker import nvidia
from penstock.engines.docker.api import Api
from penstock.engines.docker.failures import ApiError
from penstock.engines.docker.helping import helped

_MODEL = re.compile(r"^model name\s*:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Probe:
    known: bool = False
    cpu_product: str = ""
    gpus: tuple[Gpu, ...] = ()
    gpu_trouble: str | None = None
    """Why they could not be looked at last, though NVIDIA's toolkit is there."""


async def probe(api: Api, image: str, installation: str) -> Probe:
    text = await helped(api, image, installation, ["cat", "/proc/cpuinfo"])
    model = _MODEL.search(text)
    gpus, trouble = await _gpus(api, image, installation)
    return Probe(True, model[1] if model else "", gpus, trouble)


async def _gpus(api: Api, image: str, installation: str) -> tuple[tuple[Gpu, ...], str | None]:
    if not nvidia.is_installed(await api.info()):
        return (), None
    try:
        return tuple(reading.gpu for reading in await nvidia.readings(api, image, installation)), None
    except ApiError as error:
        return (), error.message
