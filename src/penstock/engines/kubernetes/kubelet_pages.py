"""What a kubelet tells of its node, in two pages of its own.

One is JSON: what the node and each pod use of CPUs, which is a rate already, and of memory. The other has lines as
Prometheus wants them, those with `id="/"` for the node: what disks and networks have moved so far, and when that was.

    container_fs_writes_bytes_total{container="",device="/dev/sda",id="/",image="",…} 8.17e+09 1763418174438

Both tell of the same measurements, of which there is one about every ten seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from penstock.engines.kubernetes.objects import Part
from penstock.engines.traffic import Traffic, total

USE, NUMBERS = "/stats/summary?only_cpu_and_memory=true", "/metrics/cadvisor"
"""Where they are. The second is long: whoever looks asks for it only when the first tells of something new."""
NANO_PER_PERCENT = 10_000_000


class Use(NamedTuple):
    at: str
    """When that was measured, by the node's clock, for comparing."""
    cpu_percent: float | None
    """None until it has measured twice."""
    memory_bytes: int


class _Cpu(Part, frozen=True):
    time: str
    usage_nano_cores: int | None = None


class _Memory(Part, frozen=True):
    working_set_bytes: int = 0


class _Node(Part, frozen=True):
    cpu: _Cpu
    memory: _Memory


class _Summary(Part, frozen=True):
    node: _Node


_summary = msgspec.json.Decoder(_Summary)


def read_use(page: bytes) -> Use | None:
    """None if that is not what the page tells."""
    try:
        found = _summary.decode(page)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    used = found.node.cpu.usage_nano_cores
    cpu = None if used is None else round(used / NANO_PER_PERCENT, 1)
    return Use(found.node.cpu.time, cpu, found.node.memory.working_set_bytes)


_READ, _WRITTEN = "container_fs_reads_bytes_total", "container_fs_writes_bytes_total"
_RECEIVED, _SENT = "container_network_receive_bytes_total", "container_network_transmit_bytes_total"
_BEGINNINGS = tuple(name.encode() for name in (_READ, _WRITTEN, _RECEIVED, _SENT))
_LINE = re.compile(r"(\w+)\{(.*)\} (\S+) (\d{1,15})$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    at: float
    """Seconds, by the node's clock."""
    traffic: Traffic


def is_wanted(line: bytes) -> bool:
    """Cheap: a node with a hundred pods has tens of thousands of lines."""
    return line.startswith(_BEGINNINGS) and b'id="/"' in line


def read_sample(lines: Iterable[str]) -> Sample | None:
    """Of the lines that are wanted; None if the node is not among what is told."""
    numbers: dict[str, dict[str, int]] = {name: {} for name in (_READ, _WRITTEN, _RECEIVED, _SENT)}
    at = 0.0
    for line in lines:
        found = _LINE.match(line)
        labels = dict(_LABEL.findall(found[2])) if found else {}
        if found and found[1] in numbers and labels.get("id") == "/":
            at = max(at, int(found[4]) / 1000)
            with suppress(ValueError, OverflowError):
                numbers[found[1]][labels.get("interface") or _disk(labels.get("device", ""))] = int(float(found[3]))
    disks, wires = _pairs(numbers[_READ], numbers[_WRITTEN]), _pairs(numbers[_RECEIVED], numbers[_SENT])
    disks.pop("", None)
    return Sample(at, total(disks, wires)) if at else None


def _disk(device: str) -> str:
    """As the kernel calls it; nothing for what has another name, as it is made of disks that are counted themselves."""
    name = device.removeprefix("/dev/")
    return "" if "/" in name else name


def _pairs(first: dict[str, int], second: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (first.get(name, 0), second.get(name, 0)) for name in first | second}
