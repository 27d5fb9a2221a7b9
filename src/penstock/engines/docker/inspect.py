"""`inspect` and `top`: a run's containers as their hosts see them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.domain.model import now
from penstock.domain.nodes import Gpu
from penstock.domain.secrets import masked, masked_all, passwords_removed
from penstock.engines.base import Run
from penstock.engines.docker import names
from penstock.engines.docker.api.client import Fields
from penstock.engines.docker.api.errors import DockerConflict, DockerNotFound
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.names import Label
from penstock.engines.docker.usage import HostGpus
from penstock.errors import Conflict
from penstock.wire.measures import GpuMeasure, Measure, ProcessMeasure

COLUMNS = "pid,user,pcpu,rss,args"
"""The columns `ps` is asked for; it tells CPU on average since the process began."""
DEFUNCT = "<defunct>"
"""How `ps` marks a process that has ended and waits for someone to take note."""
LONGEST_COMMAND, MOST_PROCESSES = 300, 200
KIBIBYTE = 1 << 10


# -- inspect -------------------------------------------------------------------------------------------------------


async def inspect(hosts: DockerHosts, run: Run) -> dict[str, Any]:
    """Return the containers of a run in Docker's own words. Raise where a host does not answer: what was last seen
    there may not be true any more."""
    parts = hosts.parts(run).values()
    found = await asyncio.gather(*(hosts.link(seen.host).api.container(seen.id) for seen in parts if not seen.gone))
    return {"containers": [passwords_removed(_clean(each)) for each in found if each]}


def _clean(found: Fields) -> Fields:
    """Leave out what repeats the rest, and mask secrets wherever variables are set."""
    config = dict(found.get("Config") or {})
    config["Env"] = [_masked(line) for line in config.get("Env") or ()]
    labels = {name: text for name, text in (config.get("Labels") or {}).items() if text or not names.is_ours(name)}
    labels.pop(Label.RECORD, None)  # the whole workload once more
    config["Labels"] = masked_all(labels)
    if Label.HAS_BASH not in labels:
        return found | {"Config": config}
    for key in ("Entrypoint", "Cmd"):  # with a minder around it that is none of the user's business
        config.pop(key, None)
    return found | {"Args": [], "Config": config}


def _masked(line: str) -> str:
    name, _, value = line.partition("=")
    return f"{name}={masked(name, value)}"


# -- top -----------------------------------------------------------------------------------------------------------


async def top(hosts: DockerHosts, gauges: HostGpus, run: Run, part: int) -> Measure:
    seen = hosts.running(run, part, "top needs a running job")
    link = hosts.link(seen.host)
    try:
        stats, rows, gpus = await asyncio.gather(
            link.api.stats(seen.id), link.api.top(seen.id, f"-eo {COLUMNS}"), gpus_of(gauges, link, _held(seen, link))
        )
    except (DockerNotFound, DockerConflict):
        raise Conflict("It has just ended.") from None
    processes = read_processes(rows)
    said = [f"{len(processes):,} processes, of which the busiest are shown"] if len(processes) > MOST_PROCESSES else []
    said += [gpus["message"]] if gpus.get("message") else []
    update = gpus | {"processes": processes[:MOST_PROCESSES], "message": "; ".join(said) or None}
    return measure(stats, seen).model_copy(update=update)


def read_processes(shown: Fields) -> tuple[ProcessMeasure, ...]:
    """Read the answer of `ps`, the busiest process first."""
    found = [
        ProcessMeasure(
            pid=int(row[0]),
            user=row[1],
            cpu_percent=float(row[2]),
            memory_bytes=int(row[3]) * KIBIBYTE,
            command=row[4][:LONGEST_COMMAND],
        )
        for row in shown.get("Processes") or ()
        if len(row) == len(COLUMNS.split(",")) and not row[4].endswith(DEFUNCT)
    ]
    return tuple(sorted(found, key=lambda each: (-each.cpu_percent, -each.memory_bytes, each.pid)))


def measure(stats: Fields, seen: ContainerRecord) -> Measure:
    networks = list((stats.get("networks") or {}).values())
    return Measure(
        at=now(),
        cpu_percent=_cpu_percent(stats),
        memory_bytes=_memory(stats.get("memory_stats") or {}),
        memory_limit_bytes=seen.memory_limit or None,
        disk_read_bytes=_moved(stats, "read"),
        disk_written_bytes=_moved(stats, "write"),
        network_received_bytes=sum(int(each.get("rx_bytes") or 0) for each in networks),
        network_sent_bytes=sum(int(each.get("tx_bytes") or 0) for each in networks),
    )


def _held(seen: ContainerRecord, link: HostLink) -> list[GpuMeasure]:
    known = {gpu.uuid: gpu for gpu in link.host.gpus or link.probe.gpus}
    return [not_measured(known[uuid]) if uuid in known else GpuMeasure(uuid=uuid) for uuid in seen.gpus]


def not_measured(gpu: Gpu) -> GpuMeasure:
    return GpuMeasure(uuid=gpu.uuid, product=gpu.product, memory_bytes=gpu.memory_bytes)


async def gpus_of(gauges: HostGpus, link: HostLink, wanted: Sequence[GpuMeasure]) -> dict[str, Any]:
    """Measure these GPUs, whatever else the host has, or say why that cannot be seen."""
    if not wanted:
        return {}
    look = await gauges.of(link)
    gpus = tuple(look.gpus.get(gpu.uuid, gpu) for gpu in wanted)
    if all(gpu.utilization is not None for gpu in gpus):
        return {"gpus": gpus}
    unknown = [gpu.uuid for gpu in gpus if gpu.uuid not in look.gpus]
    why = look.trouble or (f"nvidia-smi does not show {', '.join(unknown)}" if unknown else "they do not tell it")
    return {"gpus": gpus, "message": f"its GPUs cannot be measured: {why}"}


def _cpu_percent(stats: Fields) -> float:
    cpu, before = stats.get("cpu_stats") or {}, stats.get("precpu_stats") or {}
    used = _total(cpu) - _total(before)
    passed = int(cpu.get("system_cpu_usage") or 0) - int(before.get("system_cpu_usage") or 0)
    if used <= 0 or passed <= 0:
        return 0.0
    return round(used / passed * int(cpu.get("online_cpus") or 1) * 100, 1)


def _total(cpu: Fields) -> int:
    return int((cpu.get("cpu_usage") or {}).get("total_usage") or 0)


def _memory(memory: Fields) -> int:
    """Count memory as `docker stats` does: without files that are only kept for later."""
    details = memory.get("stats") or {}
    cache = int(details.get("total_inactive_file") or details.get("inactive_file") or 0)
    return max(int(memory.get("usage") or 0) - cache, 0)


def _moved(stats: Fields, way: str) -> int | None:
    entries = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive")
    if entries is None:
        return None
    return sum(int(each["value"]) for each in entries if str(each.get("op")).lower() == way)
