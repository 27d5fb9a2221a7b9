"""A headless Service that names the Pods of a Job: the other half of a workload of several nodes."""

from __future__ import annotations

from penstock.dialects.fields import PlacedReading, Shape, as_it_is, mapping, read_fields, text
from penstock.dialects.text import Node

JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")
WHY = "only a headless Service that names the Pods of a Job in the same file is carried"
HINT = "clusterIP: None, and selector: {job-name: NAME}"


def service(reading: PlacedReading, node: Node, path: str) -> str | None:
    """The Job it is for."""
    said = read_fields(reading, node, path, SERVICE)
    if said.get("clusterIP") != "None":
        reading.problem(WHY, node, f"{path}.clusterIP", HINT)
    selector = said.get("selector")
    labels = mapping(reading, *selector) if selector else []
    if len(labels) != 1 or labels[0][0].text not in JOB_LABELS:
        reading.problem(WHY, node, f"{path}.selector", HINT)
        return None
    return reading.text(labels[0][1], f"{path}.selector")


PUBLISHED = (WHY, "remove it")
SERVICE = Shape(
    {"clusterIP": text, "selector": as_it_is},
    dict.fromkeys(("ports", "type", "publishNotReadyAddresses", "clusterIPs", "externalName"), PUBLISHED),
    {"type": {"ClusterIP"}, "publishNotReadyAddresses": {"true", "false"}},
)
