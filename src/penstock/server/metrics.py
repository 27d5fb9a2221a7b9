"""Prometheus metrics, computed when they are asked for."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

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


def exposition(counts: dict[str, int], totals: Totals) -> tuple[bytes, str]:
    registry = CollectorRegistry()
    workloads = Gauge("penstock_workloads", "Workloads by status", ["status"], registry=registry)
    for status, number in sorted(counts.items()):
        workloads.labels(status).set(number)
    for field, (name, meaning) in GAUGES.items():
        Gauge(name, meaning, registry=registry).set(getattr(totals, field))
    return generate_latest(registry), CONTENT_TYPE_LATEST
