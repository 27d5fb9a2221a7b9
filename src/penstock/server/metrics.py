"""Prometheus metrics, computed when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from penstock.services.nodes import Totals

GAUGES = {
    "nodes": ("penstock_nodes", "Nodes"),
    "ready": ("penstock_nodes_ready", "Nodes that take work"),
    "cpus": ("penstock_cpus", "CPUs offered to workloads"),
    "cpus_free": ("penstock_cpus_free", "CPUs no workload has asked for"),
    "memory_bytes": ("penstock_memory_bytes", "Memory offered to workloads"),
    "memory_free_bytes": ("penstock_memory_free_bytes", "Memory no workload has asked for"),
    "gpus": ("penstock_gpus", "GPUs offered to workloads"),
    "gpus_held": ("penstock_gpus_held", "GPUs somebody has"),
}


class CurrentGauges(Collector):
    def __init__(self, counts: dict[str, int], totals: Totals) -> None:
        self._counts = counts
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        workloads = GaugeMetricFamily("penstock_workloads", "Workloads by status", labels=["status"])
        for status, number in sorted(self._counts.items()):
            workloads.add_metric([status], number)
        yield workloads
        for field, (name, meaning) in GAUGES.items():
            yield GaugeMetricFamily(name, meaning, getattr(self._totals, field))


def exposition(counts: dict[str, int], totals: Totals) -> tuple[bytes, str]:
    registry = CollectorRegistry()
    registry.register(CurrentGauges(counts, totals))
    return generate_latest(registry), CONTENT_TYPE_LATEST
