"""Read one manifest as a workload or a volume and report every problem with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.dialects.manifest.job import Services, job, service
from penstock.dialects.manifest.metadata import ManifestMetadata, metadata
from penstock.dialects.manifest.pod import pod
from penstock.dialects.manifest.volumes import claim
from penstock.dialects.reader import FieldRules, ReadContext, as_it_is, below, placed, read_fields, text
from penstock.dialects.task.read import Task
from penstock.dialects.yaml import Node, Pairs, Scalar
from penstock.domain.names import shorten
from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import Spec
from penstock.errors import Problem

POD, JOB, CLAIM, SERVICE = "Pod", "Job", "PersistentVolumeClaim", "Service"
VERSIONS = {POD: "v1", JOB: "batch/v1", CLAIM: "v1", SERVICE: "v1"}
INSTEAD = {
    "Deployment": "a Pod is started again when it ends",
    "ReplicaSet": "a Pod is started again when it ends",
    "StatefulSet": "a Pod is started again when it ends",
    "CronJob": "a Job runs once",
    "ConfigMap": "values go under env, files into a volume",
    "Secret": "values go under env",
    "Namespace": "the admin decides where things are made",
    "PersistentVolume": "a PersistentVolumeClaim gets one",
}


class ManifestWorkload(NamedTuple):
    task: Task
    kind: str
    """`Pod` or `Job`."""
    name: str


class NewClaim(NamedTuple):
    name: str
    size: str
    storage_class: str | None
    access_modes: tuple[AccessMode, ...]


class ManifestVolume(NamedTuple):
    claim: NewClaim
    where: str | None
    places: Mapping[tuple[str, ...], tuple[str | None, str]] = {}
    """For `name`, `size`, `storage_class` and `access_modes`: the place and the manifest's field."""

    def place(self, key: str) -> tuple[str | None, str]:
        return self.places.get((key,), (self.where, key))


Read = tuple[Pairs, str, str]
"""A document, its kind, and the path that leads to it."""


def services(opened: list[Read], source: str, problems: list[Problem]) -> Services:
    jobs = {_name_of(top) for top, kind, _ in opened if kind == JOB}
    found = {}
    for top, _, path in (one for one in opened if one[1] == SERVICE):
        context = ReadContext(source)
        about, spec = _parts(context, top, path)
        wanted = service(context, *spec) if spec else None
        if wanted and wanted not in jobs:
            context.problem(
                f"there is no Job '{shorten(wanted)}' in this file", top, below(below(path, "spec"), "selector")
            )
        if about.name and wanted:
            found[about.name] = wanted
        problems += context.problems
    return found


def _name_of(top: Pairs) -> str | None:
    about = next((node for key, node in top.items if key.text == "metadata"), None)
    pairs = about.items if isinstance(about, Pairs) else []
    return next((node.text for key, node in pairs if key.text == "name" and isinstance(node, Scalar)), None)


def _parts(context: ReadContext, top: Pairs, path: str) -> tuple[ManifestMetadata, tuple[Node, str] | None]:
    said = read_fields(context, top, path, MANIFEST)
    return said.get("metadata", ManifestMetadata()), said.get("spec")


def manifest(
    context: ReadContext, top: Pairs, kind: str, path: str, services: Services
) -> ManifestWorkload | ManifestVolume | None:
    about, spec = _parts(context, top, path)
    context.places[()] = (context.where(top), kind)
    if spec is None:
        return None
    said: dict[str, Any] = (
        pod(context, *spec) if kind == POD else job(context, *spec, about, services) if kind == JOB else {}
    )
    asked = claim(context, *spec) if kind == CLAIM else {}
    if context.problems or about.name is None:
        return None
    if kind == CLAIM:
        return ManifestVolume(NewClaim(about.name, **asked), context.places[("name",)][0], context.places)
    workload = Spec(name=about.name, queue=about.queue, **said)
    task = Task(workload, tuple(context.notices), None, context.source, context.places)
    return ManifestWorkload(task, kind, about.name)


STATUS = {"status": ("the cluster wrote it", "remove it")}
MANIFEST = FieldRules(
    {"apiVersion": text, "kind": placed(text, "kind"), "metadata": metadata, "spec": as_it_is},
    STATUS,
    required={"metadata": None, "spec": None},
)
