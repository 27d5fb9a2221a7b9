"""A manifest to the task YAML that says the same, a task YAML to its manifest."""

from __future__ import annotations

from penstock.dialects.manifest.documents import (
    Document,
    ManifestVolume,
    NewClaim,
    TaskDocument,
    read_documents,
)
from penstock.dialects.manifest.write import IMAGE, write_manifest
from penstock.dialects.task.write import write_task
from penstock.domain.volumes import AccessMode


def convert(text: str | bytes, source: str, *, image: str = IMAGE) -> str:
    """Each document of the text in the other way of writing. A volume becomes the command that makes it."""
    return "---\n".join(_converted(document, image) for document in read_documents(text, source))


def _converted(document: Document, image: str) -> str:
    if isinstance(document, ManifestVolume):
        return f"# {_command(document.claim)}\n"
    notes = "".join(f"# {notice}\n" for notice in document.task.notices)
    if isinstance(document, TaskDocument):
        return notes + write_manifest(document.task.spec, image=image)
    return notes + write_task(document.task.spec)


def _command(claim: NewClaim) -> str:
    words = ["penstock volumes create", claim.name, claim.size]
    if claim.storage_class:
        words += ["--storage-class", claim.storage_class]
    if claim.access_modes != (AccessMode.ReadWriteOnce,):
        words += ["--access-modes", ",".join(claim.access_modes)]
    return " ".join(words)
