"""Rewrite a workload in another way of writing: as a task, a document or a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from penstock.dialects.document.types import AskedVolume, NounDocument, WorkloadDocument
from penstock.dialects.document.write import write_noun, write_workload
from penstock.dialects.documents import Document, TaskDocument, read_documents
from penstock.dialects.manifest.read import ManifestVolume, ManifestWorkload, NewClaim
from penstock.dialects.manifest.write import IMAGE, write_manifest
from penstock.dialects.task.read import Task
from penstock.dialects.task.write import write_task
from penstock.dialects.yaml import invalid
from penstock.domain.volumes import AccessMode
from penstock.errors import Problem


class ConvertTarget(StrEnum):
    task = "task"
    document = "document"
    kubernetes = "kubernetes"


def convert(
    text: str | bytes,
    source: str,
    *,
    image: str = IMAGE,
    to: ConvertTarget | None = None,
    group: str | None = None,
    claims: Mapping[str, str] | None = None,
) -> str:
    """Each document of the text in the way that is asked for; by itself, a task becomes a manifest and any other
    workload a task. A volume becomes the command that makes it, or a document. What the other way has no word for is
    an error: Invalid, with all of it at once.

    `group` is where things belong that name none, as no task does; `claims` is what volumes are called in a cluster.
    """
    documents = read_documents(text, source)
    problems = [problem for document in documents if (problem := _unsayable(document, to, group))]
    if problems:
        raise invalid(source, problems)
    return "---\n".join(_converted(document, image, to, claims or {}) for document in documents)


def _converted(document: Document, image: str, to: ConvertTarget | None, claims: Mapping[str, str]) -> str:
    if isinstance(document, ManifestVolume):
        return _volume(document.claim, to)
    if isinstance(document, NounDocument):
        return write_noun(document.noun, document.group)  # which only a document can say
    task = document.task
    notes = "".join(f"# {notice}\n" for notice in task.notices)
    target = _target(document, to)
    if target is ConvertTarget.kubernetes:
        return notes + write_manifest(task.spec, claims, image=image)
    if target is ConvertTarget.document:
        return notes + write_workload(task.spec, document.group if isinstance(document, WorkloadDocument) else None)
    return notes + write_task(task.spec)


def _target(document: Document, to: ConvertTarget | None) -> ConvertTarget:
    return to or (ConvertTarget.kubernetes if isinstance(document, TaskDocument) else ConvertTarget.task)


def _unsayable(document: Document, to: ConvertTarget | None, group: str | None) -> Problem | None:
    """Return the problem of a document that the other format cannot express: tasks and manifests have no groups."""
    if isinstance(document, NounDocument):
        if to in (None, ConvertTarget.document):
            return None
        message = f"a {document.kind} cannot be said as a {WORDS[to]}: only a document can"
        return Problem(message, where=document.place()[0], field="kind", hint="convert it with: --to document")
    target = _target(document, to)
    if isinstance(document, ManifestWorkload) and target is not ConvertTarget.kubernetes:
        return _of_secrets(document.task, target)
    if (
        not isinstance(document, WorkloadDocument)
        or target is ConvertTarget.document
        or document.group in (None, group)
    ):
        return None
    task, said = document.task, document.group
    message = f"'{said}' cannot be said in a {WORDS[target]}, which belongs to the group of whoever applies it"
    return Problem(message, where=task.where("group"), field=task.field("group"), hint=f"name that group: -g {said}")


def _of_secrets(task: Task, target: ConvertTarget) -> Problem | None:
    keys = [key for key in ("from_secrets", "pull_secrets") if getattr(task.spec, key)]
    if not keys:
        return None
    message = f"names a Secret of the cluster, which cannot be said in a {WORDS[target]}"
    return Problem(message, where=task.where(keys[0]), field=task.field(keys[0]), hint="keep it as a manifest")


WORDS = {ConvertTarget.task: "task", ConvertTarget.document: "document", ConvertTarget.kubernetes: "manifest"}


def _volume(claim: NewClaim, to: ConvertTarget | None) -> str:
    if to is not ConvertTarget.document:
        return f"# {_command(claim)}\n"
    asked = AskedVolume(
        name=claim.name, size=claim.size, storage_class=claim.storage_class, access_modes=claim.access_modes
    )
    return write_noun(asked)


def _command(claim: NewClaim) -> str:
    words = ["penstock volumes create", claim.name, claim.size]
    if claim.storage_class:
        words += ["--storage-class", claim.storage_class]
    if claim.access_modes != (AccessMode.ReadWriteOnce,):
        words += ["--access-modes", ",".join(claim.access_modes)]
    return " ".join(words)
