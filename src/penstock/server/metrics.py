"""Prometheus text, made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from penstock.services.reconcile import Reconciler


class _Now(Collector):
    def __init__(self, counts: dict[str, int], reconciler: Reconciler) -> None:
        self._counts = counts
        self._reconciler = reconciler

    def collect(self) -> Iterator[Metric]:
        workloads = GaugeMetricFamily("penstock_workloads", "Workloads by status", labels=["status"])
        for status, number in sorted(self._counts.items()):
            workloads.add_metric([status], number)
        yield workloads
        node, room = self._reconciler.node, self._reconciler.room()
        yield GaugeMetricFamily("penstock_cpus", "CPUs offered to workloads", node.cpus_milli / 1000)
        yield GaugeMetricFamily("penstock_cpus_free", "CPUs no workload has asked for", max(room.cpus_milli, 0) / 1000)
        yield GaugeMetricFamily("penstock_memory_bytes", "Memory offered to workloads", node.memory_bytes)
        yield GaugeMetricFamily(
            "penstock_memory_free_bytes", "Memory no workload has asked for", max(room.memory_bytes, 0)
        )
        yield GaugeMetricFamily("penstock_gpus", "GPUs offered to workloads", len(node.gpus))
        yield GaugeMetricFamily("penstock_gpus_held", "GPUs workloads have", len(self._reconciler.holders()))


def exposition(counts: dict[str, int], reconciler: Reconciler) -> tuple[bytes, str]:
    registry = CollectorRegistry()
    registry.register(_Now(counts, reconciler))
    return generate_latest(registry), CONTENT_TYPE_LATEST
