"""Measure what a host does: a small container reads its kernel's counters a second apart.

Every container sees these. What it does not see is the host's network: that would need the host's own namespaces.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

from penstock.domain.model import now
from penstock.domain.quantities import show_cpus
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.inspect import gpus_of, not_measured
from penstock.engines.docker.usage import HostGpus
from penstock.engines.shared.counters import Traffic, read_traffic
from penstock.wire.measures import NodeMeasure

KIBIBYTE = 1 << 10
TICK = 0.01
"""Seconds: the kernel's counters of time are not more exact."""
LOOK = """
cat /proc/loadavg /proc/meminfo
for i in 0 1; do head -n 1 /proc/stat; cat /proc/uptime /proc/diskstats; sleep $((1-i)); done
"""
NO_NETWORK = "what its network moves cannot be seen from a container"


async def measure_node(hosts: DockerHosts, gauges: HostGpus, name: str) -> NodeMeasure | None:
    """Measure a node; another small container looks at its GPUs at the same time."""
    node = next((node for node in hosts.nodes() if node.name == name), None)
    if node is None:
        return None
    told = NodeMeasure(
        name=name,
        at=now(),
        cpu_product=node.cpu_product,
        cpus=show_cpus(node.cpus_milli),
        memory_bytes=node.memory_bytes,
        gpus=tuple(map(not_measured, node.gpus)),
        message=node.message,
    )
    try:
        link = hosts.link(name)
        text, gpus = await asyncio.gather(link.helpers.run(["sh", "-c", LOOK]), gpus_of(gauges, link, told.gpus))
    except DockerError as error:
        return told.model_copy(update={"message": node.message or f"it cannot be measured: {error.message}"})
    said = [NO_NETWORK, *([gpus["message"]] if gpus.get("message") else [])]
    seen = read_activity(text, node.cpus_milli)
    return told.model_copy(update=gpus | seen | {"message": node.message or "; ".join(said)})


def read_activity(text: str, cpus_milli: int) -> dict[str, Any]:
    head, *looks = re.split(r"^(?=cpu )", text, flags=re.MULTILINE)
    load = re.match(r"([\d.]+) ([\d.]+) ([\d.]+) ", head)
    sizes = {key: int(size) * KIBIBYTE for key, size in re.findall(r"^(\w+):\s+(\d+) kB$", head, re.MULTILINE)}
    found: dict[str, Any] = {"load": tuple(float(each) for each in load.groups()) if load else None}
    if {"MemTotal", "MemAvailable"} <= set(sizes):
        found["memory_used_bytes"] = sizes["MemTotal"] - sizes["MemAvailable"]
    if len(looks) == 2:
        before, after = map(_look, looks)
        all_, idle = sum(after.cpu) - sum(before.cpu), sum(after.cpu[3:5]) - sum(before.cpu[3:5])
        found["cpu_percent"] = round((all_ - idle) / all_ * cpus_milli / 10, 1) if all_ > 0 else None
        found |= after.traffic.since(before.traffic, max(after.at - before.at, TICK))
    return found


class _HostCounters(NamedTuple):
    at: float
    cpu: list[int]
    traffic: Traffic


def _look(text: str) -> _HostCounters:
    cpu, at, disks = text.split("\n", 2)
    return _HostCounters(float(at.split()[0]), [int(each) for each in cpu.split()[1:]], read_traffic(disks, ""))
