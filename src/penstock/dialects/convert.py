"""A workload in another way of writing: as a task, as a document, as a manifest."""

from __future__ import annotations

from enum import StrEnum

from penstock.dialects.document import AskedVolume, NounDocument, WorkloadDocument, write_noun, write_workload
from penstock.dialects.documents import Document, TaskDocument, read_documents
from penstock.dialects.manifest.read import ManifestVolume, NewClaim
from penstock.dialects.manifest.write import IMAGE, write_manifest
from penstock.dialects.task.write import write_task
from penstock.domain.volumes import AccessMode


class Target(StrEnum):
    task = "task"
    document = "document"
    manifest = "manifest"


def convert(text: str | bytes, source: str, *, image: str = IMAGE, to: Target | None = None) -> str:
    """Each document of the text in the way that is asked for; by itself, a task becomes a manifest and any other
    workload a task. A volume becomes the command that makes it, or a document."""
    return "---\n".join(_converted(document, image, to) for document in read_documents(text, source))


def _converted(document: Document, image: str, to: Target | None) -> str:
    if isinstance(document, ManifestVolume):
        return _volume(document.claim, to)
    if isinstance(document, NounDocument):
        return write_noun(document.noun, document.group)  # which only a document can say
    task = document.task
    notes = "".join(f"# {notice}\n" for notice in task.notices)
    target = to or (Target.manifest if isinstance(document, TaskDocument) else Target.task)
    if target is Target.manifest:
        return notes + write_manifest(task.spec, image=image)
    if target is Target.document:
        return notes + write_workload(task.spec, document.group if isinstance(document, WorkloadDocument) else None)
    return notes + write_task(task.spec)


def _volume(claim: NewClaim, to: Target | None) -> str:
    if to is not Target.document:
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
