"""What a host does: Docker does not tell it, so a small container reads counters of its kernel, a second apart.

To see the processes and networks of the host it shares the host's process numbers; `docs/decisions/docker.md` says why
it may. Where a host refuses such a container, another looks at what every container sees.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.domain.model import now
from penstock.domain.quantities import show_cpus
from penstock.engines.docker.api import Fields
from penstock.engines.docker.failures import ApiError, Clash, NotFound, Unreachable
from penstock.engines.docker.gauges import Gauges
from penstock.engines.docker.helping import helped
from penstock.engines.docker.hosts import Hosts
from penstock.engines.docker.images import PullFailed
from penstock.engines.docker.link import Link
from penstock.engines.docker.looking import gpus_of, unseen
from penstock.engines.docker.processes import (
    KIBIBYTE,
    NAMED,
    NOBODY,
    TICKS,
    UNABLE,
    busiest,
    read_busy,
    read_rows,
    twice,
)
from penstock.engines.docker.seen import Seen
from penstock.engines.traffic import Traffic, read_traffic
from penstock.wire import NodeMeasure, ProcessMeasure

AT_ONCE = 8
MOST = 5
LOOK = f"cat /proc/loadavg /proc/meminfo; {twice('/proc/diskstats', '/proc/1/net/dev')}"
GROUPS = r"""
function tell(place) {
  while ((getline line < (place "/cgroup")) > 0) print line
}"""
WHOLE = busiest(LOOK, MOST, GROUPS)
HOSTS_PROCESSES: Fields = UNABLE | {"PidMode": "host", "UsernsMode": "host"}
"""Not its network or files. Where Docker gives containers users of their own, it wants those of the host with this."""
CONTAINER = re.compile(r"[0-9a-f]{64}")


async def activity(hosts: Hosts, gauges: Gauges, name: str, image: str, installation: str) -> NodeMeasure | None:
    """Beside what looks here, another container looks at its GPUs."""
    node = next((node for node in hosts.nodes() if node.name == name), None)
    if node is None:
        return None
    told = NodeMeasure(
        name=name,
        at=now(),
        cpu_product=node.cpu_product,
        cpus=show_cpus(node.cpus_milli),
        memory_bytes=node.memory_bytes,
        gpus=tuple(map(unseen, node.gpus)),
        message=node.message,
    )
    try:
        link = hosts.link(name)
        seen, gpus = await asyncio.gather(
            _seen(link, image, installation, node.cpus_milli), gpus_of(gauges, link, told.gpus)
        )
    except ApiError as error:
        return told.model_copy(update={"message": node.message or f"what it does cannot be seen: {error.message}"})
    said = [found["message"] for found in (seen, gpus) if found.get("message")]
    return told.model_copy(update=gpus | seen | {"message": node.message or "; ".join(said) or None})


async def _seen(link: Link, image: str, installation: str, cpus_milli: int) -> dict[str, Any]:
    words = ["sh", "-c", WHOLE]
    try:
        text = await helped(link.api, image, installation, words, user=NOBODY, config=HOSTS_PROCESSES)
    except (Unreachable, PullFailed):
        raise
    except ApiError as error:
        refused = error.message.rstrip(".")
    else:
        found = read_activity(text, cpus_milli, {seen.id: seen.run.workload_id for seen in link.all()})
        if found.get("processes"):
            return found
        refused = "its kernel hides processes from all but their users (hidepid)"
    text, busiest = await asyncio.gather(
        helped(link.api, image, installation, ["sh", "-c", LOOK]), _busiest_of_ours(link)
    )
    said = f"its network and the processes of others cannot be seen: {refused}"
    return read_activity(text, cpus_milli) | {"processes": busiest, "message": said}


def read_activity(text: str, cpus_milli: int, workloads: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`workloads` are those of containers, by their ids."""
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
        seconds = max(after.at - before.at, 1 / TICKS)
        found |= after.traffic.since(before.traffic, seconds)
        found["processes"] = _busiest(looks[1], seconds, workloads or {})
    return found


class _Look(NamedTuple):
    at: float
    cpu: list[int]
    traffic: Traffic


def _look(text: str) -> _Look:
    cpu, at, tables = text.split("\n", 2)
    disks, _, networks = tables.partition("Inter-|")  # so begins its heading
    return _Look(float(at.split()[0]), [int(each) for each in cpu.split()[1:]], read_traffic(disks, networks))


def _busiest(look: str, seconds: float, workloads: Mapping[str, str]) -> tuple[ProcessMeasure, ...]:
    found = [
        process.model_copy(update={"workload": _workload(CONTAINER.findall(told), workloads)})
        for process, told in read_busy(look, seconds)
    ]
    return tuple(sorted(found, key=lambda each: (-each.cpu_percent, each.pid)))


def _workload(containers: Sequence[str], workloads: Mapping[str, str]) -> str | None:
    return next((workloads[id_] for id_ in containers if id_ in workloads), None)


async def _busiest_of_ours(link: Link) -> tuple[ProcessMeasure, ...]:
    """Docker names the processes of its own containers."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def of(seen: Seen) -> list[ProcessMeasure]:
        async with limit:
            try:
                found = read_rows(await link.api.top(seen.id, f"-eo {NAMED}"))
            except (NotFound, Clash):  # it has just ended
                return []
        return [each.model_copy(update={"workload": seen.run.workload_id}) for each in found]

    found = await asyncio.gather(*(of(seen) for seen in link.all() if seen.runs))
    each = [process for processes in found for process in processes]
    return tuple(sorted(each, key=lambda process: (-process.cpu_percent, process.pid))[:MOST])
