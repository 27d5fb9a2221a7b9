"""What NVIDIA's dcgm-exporter prints of the GPUs of a node: a line for each number, in Prometheus' format.

    DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-6e5f",…,container="task",namespace="jobs",pod="train-abcd2345-0-x7k2p"} 87

The names of the pod are there while one has the GPU. What is not known is left out, `N/A`, or a number that cannot be.
Of a part of a GPU (MIG) the lines say which, and its use is told only as a ratio.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from penstock.wire.measures import GpuMeasure

PERCENT, RATIO, USED_MIB = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"
MOST = {PERCENT: 100.0, RATIO: 1.0, USED_MIB: float(1 << 30)}
"""What is more stands for what is not known."""
MIB = 1 << 20
_LINE = re.compile(rf"({'|'.join(MOST)})\{{(.*)\}} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Place = tuple[str, str]
"""Namespace and name of a pod."""


class _Gpu(NamedTuple):
    namespace: str
    pod: str
    uuid: str
    part: str
    share: str
    """Of one that several pods take turns on."""
    product: str


def read_gpus(text: str) -> dict[Place, list[GpuMeasure]]:
    """Those that pods have, and of which everything is known."""
    gpus: defaultdict[Place, list[GpuMeasure]] = defaultdict(list)
    for gpu, known in _numbers(text).items():
        if all(gpu[:3]) and (measure := _measure(gpu, known)):
            gpus[gpu.namespace, gpu.pod].append(measure)
    return gpus


def read_node(text: str) -> tuple[GpuMeasure, ...]:
    """All of the node, with what is known of each; one that several pods share is one."""
    gpus: defaultdict[_Gpu, dict[str, float]] = defaultdict(dict)
    for gpu, known in _numbers(text).items():
        if gpu.uuid:
            whole = gpus[gpu._replace(namespace="", pod="", share="")]
            whole |= {name: max(number, whole.get(name, 0.0)) for name, number in known.items()}
    return tuple(
        GpuMeasure(
            uuid=gpu.uuid,
            product=gpu.product,
            utilization=_use(gpu, known),
            memory_used_bytes=int(known[USED_MIB]) * MIB if USED_MIB in known else None,
        )
        for gpu, known in gpus.items()
    )


def _numbers(text: str) -> Mapping[_Gpu, dict[str, float]]:
    numbers: defaultdict[_Gpu, dict[str, float]] = defaultdict(dict)
    for line in text.splitlines():
        if (found := _LINE.match(line)) and (number := _number(found[3], MOST[found[1]])) is not None:
            known = numbers[_gpu(dict(_LABEL.findall(found[2])))]
            known[found[1]] = max(number, known.get(found[1], 0.0))  # some versions have a line for each process
    return numbers


def _gpu(labels: Mapping[str, str]) -> _Gpu:
    """Older versions, and newer ones that are told to, have other names for the pod."""
    return _Gpu(
        labels.get("namespace") or labels.get("pod_namespace", ""),
        labels.get("pod") or labels.get("pod_name", ""),
        labels.get("UUID") or labels.get("uuid", ""),
        labels.get("GPU_I_ID", ""),
        labels.get("vgpu", ""),
        labels.get("modelName", ""),
    )


def _number(text: str, most: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= most else None


def _use(gpu: _Gpu, known: Mapping[str, float]) -> int | None:
    """Percent, rounded up: what does a little is not idle."""
    uses = [100 * known[RATIO]] if RATIO in known else []
    if PERCENT in known and not gpu.part:
        uses.append(known[PERCENT])
    return ceil(max(uses)) if uses else None


def _measure(gpu: _Gpu, known: Mapping[str, float]) -> GpuMeasure | None:
    use = _use(gpu, known)
    if use is None or USED_MIB not in known:
        return None
    return GpuMeasure(uuid=gpu.uuid, utilization=use, memory_used_bytes=int(known[USED_MIB]) * MIB)
