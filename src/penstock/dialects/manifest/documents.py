"""A text of one or several documents to what each of them is: a task, a workload or a volume; all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from penstock.dialects.manifest.claim import claim
from penstock.dialects.manifest.fields import ManifestReading, Shape, as_it_is, read_fields, sequence, text
from penstock.dialects.manifest.job import Services, job
from penstock.dialects.manifest.names import Metadata, metadata
from penstock.dialects.manifest.pod import pod
from penstock.dialects.manifest.service import service
from penstock.dialects.task.read import Task, task_of
from penstock.dialects.text import Node, Pairs, Scalar, invalid, read_mappings
from penstock.domain.names import shorten
from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import Spec
from penstock.errors import Problem

POD, JOB, CLAIM, SERVICE, LIST = "Pod", "Job", "PersistentVolumeClaim", "Service", "List"
VERSIONS = {POD: "v1", JOB: "batch/v1", CLAIM: "v1", SERVICE: "v1", LIST: "v1"}
KINDS = f"the kinds are {POD}, {JOB}, {CLAIM} and {LIST}; a task has no kind"
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


class TaskDocument(NamedTuple):
    """A task as `penstock jobs submit` takes it."""

    task: Task


class ManifestWorkload(NamedTuple):
    task: Task
    kind: str
    """`Pod` or `Job`."""
    name: str


class NewClaim(NamedTuple):
    """A volume to be made, as it was asked for."""

    name: str
    size: str
    storage_class: str | None
    access_modes: tuple[AccessMode, ...]


class ManifestVolume(NamedTuple):
    claim: NewClaim
    where: str | None
    places: Mapping[tuple[str, ...], tuple[str | None, str]] = {}
    """`name`, `size`, `storage_class`, `access_modes` → where it is said, and the manifest's own name for it."""

    def place(self, key: str) -> tuple[str | None, str]:
        return self.places.get((key,), (self.where, key))


Document = TaskDocument | ManifestWorkload | ManifestVolume
Read = tuple[Pairs, str, str]
"""A document of a manifest, its kind, and the path that leads to it."""


def read_documents(text: str | bytes, source: str) -> list[Document]:
    """In the order of the text. Raises Invalid with every problem of every document."""
    tops, problems = read_mappings(text, source)
    opened = [one for top in tops for one in _opened(top, source, problems)]
    services = _services(opened, source, problems)
    found = [document for one in opened if (document := _document(one, source, problems, services)) is not None]
    problems += _twice(found)
    if problems:
        raise invalid(source, problems)
    return found


def _opened(top: Pairs, source: str, problems: list[Problem], path: str = "") -> Iterator[Read]:
    """What a List holds stands in its place. A task has no kind."""
    reading = ManifestReading(source)
    keys = {key.text: node for key, node in top.items}
    if "kind" not in keys and "apiVersion" not in keys and not {"metadata", "spec"} <= keys.keys():
        yield top, "", path
        return
    kind = _kind(reading, keys, top, path)
    inside = read_fields(reading, top, path, LISTED).get("items") if kind == LIST else None
    items = sequence(reading, *inside) if inside else []
    problems += reading.problems
    if kind is not None and kind != LIST:
        yield top, kind, path
    for node, here in items:
        if isinstance(node, Pairs):
            yield from _opened(node, source, problems, here)
        else:
            problems.append(Problem("must be a mapping", where=reading.where(node), field=here))


def _kind(reading: ManifestReading, keys: Mapping[str, Node], top: Pairs, path: str) -> str | None:
    prefix = f"{path}." if path else ""
    kind = keys.get("kind")
    if not isinstance(kind, Scalar) or not kind.text:
        reading.problem("is missing", kind or top, f"{prefix}kind", KINDS)
        return None
    if kind.text not in VERSIONS:
        instead = INSTEAD.get(kind.text)
        hint = f"{instead}; {KINDS}" if instead else KINDS
        reading.problem(f"'{shorten(kind.text)}' is not a kind Penstock knows", kind, f"{prefix}kind", hint)
        return None
    version, right = keys.get("apiVersion"), VERSIONS[kind.text]
    if not isinstance(version, Scalar) or version.text != right:
        reading.problem(f"must be '{right}' for a {kind.text}", version or top, f"{prefix}apiVersion", f"write {right}")
    return kind.text


def _services(opened: list[Read], source: str, problems: list[Problem]) -> Services:
    jobs = {_name_of(top) for top, kind, _ in opened if kind == JOB}
    found = {}
    for top, _, path in (one for one in opened if one[1] == SERVICE):
        reading = ManifestReading(source)
        about, spec = _parts(reading, top, path)
        wanted = service(reading, *spec) if spec else None
        if wanted and wanted not in jobs:
            here = f"{path}.spec.selector" if path else "spec.selector"
            reading.problem(f"there is no Job '{shorten(wanted)}' in this file", top, here)
        if about.name and wanted:
            found[about.name] = wanted
        problems += reading.problems
    return found


def _name_of(top: Pairs) -> str | None:
    about = next((node for key, node in top.items if key.text == "metadata"), None)
    pairs = about.items if isinstance(about, Pairs) else []
    return next((node.text for key, node in pairs if key.text == "name" and isinstance(node, Scalar)), None)


def _parts(reading: ManifestReading, top: Pairs, path: str) -> tuple[Metadata, tuple[Node, str] | None]:
    said = read_fields(reading, top, path, MANIFEST)
    prefix = f"{path}." if path else ""
    for key in ("metadata", "spec"):
        if key not in said:
            reading.problem("is missing", top, f"{prefix}{key}")
    return said.get("metadata", Metadata()), said.get("spec")


def _document(one: Read, source: str, problems: list[Problem], services: Services) -> Document | None:
    top, kind, path = one
    if kind == SERVICE:
        return None
    reading = ManifestReading(source)
    found = _manifest(reading, top, kind, path, services) if kind else _task(reading, top, path)
    problems += reading.problems
    return found


def _task(reading: ManifestReading, top: Pairs, path: str) -> TaskDocument | None:
    if path:
        reading.problem("is missing", top, f"{path}.kind", KINDS)
        return None
    task = task_of(reading, top)
    return TaskDocument(task) if task else None


def _manifest(
    reading: ManifestReading, top: Pairs, kind: str, path: str, services: Services
) -> ManifestWorkload | ManifestVolume | None:
    about, spec = _parts(reading, top, path)
    reading.places[()] = (reading.where(top), kind)
    if spec is None:
        return None
    said: dict[str, Any] = (
        pod(reading, *spec) if kind == POD else job(reading, *spec, about, services) if kind == JOB else {}
    )
    asked = claim(reading, *spec) if kind == CLAIM else {}
    if reading.problems or about.name is None:
        return None
    if kind == CLAIM:
        return ManifestVolume(NewClaim(about.name, **asked), reading.places[("name",)][0], reading.places)
    workload = Spec(name=about.name, queue=about.queue, **said)
    task = Task(workload, tuple(reading.notices), None, reading.source, reading.places)
    return ManifestWorkload(task, kind, about.name)


def _twice(found: list[Document]) -> list[Problem]:
    """Two of one name would each undo the other."""
    seen: set[tuple[bool, str]] = set()
    problems = []
    for document in found:
        if isinstance(document, ManifestVolume):
            (where, field), name, volume = document.place("name"), document.claim.name, True
        else:
            task = document.task
            where, field, name, volume = task.where("name"), task.field("name"), task.spec.name or "", False
        if name and (volume, name) in seen:
            kind = "volume" if volume else "workload"
            problems.append(Problem(f"a {kind} '{name}' is in this file already", where=where, field=field))
        seen.add((volume, name))
    return problems


def _list_metadata(reading: ManifestReading, node: Node, path: str) -> None:
    read_fields(reading, node, path, LIST_METADATA)


STATUS = {"status": ("the cluster wrote it", "remove it")}
MANIFEST = Shape({"apiVersion": text, "kind": text, "metadata": metadata, "spec": as_it_is}, STATUS)
LIST_METADATA = Shape(
    {}, dict.fromkeys(("resourceVersion", "continue", "selfLink"), STATUS["status"]), {"resourceVersion": {""}}
)
LISTED = Shape({"apiVersion": text, "kind": text, "items": as_it_is, "metadata": _list_metadata})
