"""Read `metadata` and the names a manifest gives to things."""

from __future__ import annotations

from typing import NamedTuple

from penstock.dialects.reader import FieldRules, ReadContext, below, fields, mapping, matching, placed, read_fields
from penstock.dialects.task.mounts import is_reference
from penstock.dialects.task.runs import job_name, queue
from penstock.dialects.yaml import Node

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
OF_THE_CLUSTER = ("the cluster wrote it", "remove it")
OUR_OWN = "Penstock sets labels and annotations of its own"


class ManifestMetadata(NamedTuple):
    name: str | None = None
    queue: str | None = None


def metadata(context: ReadContext, node: Node, path: str) -> ManifestMetadata:
    said = read_fields(context, node, path, METADATA)
    return ManifestMetadata(said.get("name"), said.get("labels"))


reference = matching(is_reference, "is not a volume's name", "for example ml-data")
"""Reads the name of a claim."""


def _labels(context: ReadContext, node: Node, path: str) -> str | None:
    """Return the queue, the only label with a meaning here."""
    found = None
    for key, value in mapping(context, node, path):
        here = below(path, key.text)
        if key.text == QUEUE_LABEL:
            found = queue(context, value, here)
            context.says(key, here, "queue")
        else:
            context.problem(f"is not supported: {OUR_OWN}", key, here, "remove it")
    return found


METADATA = FieldRules(
    readers={"name": placed(job_name, "name"), "labels": _labels},
    refused={
        "namespace": ("where things are made is for the admin: the setting kubernetes_namespace", "remove it"),
        "annotations": (OUR_OWN, "remove it"),
        "generateName": ("a workload is found again by its name", "write 'name'"),
        "ownerReferences": ("nothing else owns a workload", "remove it"),
        "finalizers": ("Penstock decides when it may go", "remove it"),
        **dict.fromkeys(
            ("creationTimestamp", "uid", "resourceVersion", "generation", "managedFields", "selfLink"), OF_THE_CLUSTER
        ),
    },
    plain={"resourceVersion": {""}},
    required={"name": "for example 'name: train'"},
)
NO_METADATA = FieldRules(readers={}, refused={**METADATA.refused, "labels": (OUR_OWN, "remove it")})
"""The metadata of a template, which has no name of its own."""
template_metadata = fields(NO_METADATA)
