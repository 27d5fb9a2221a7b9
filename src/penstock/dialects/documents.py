"""Split a text into documents and tell what each one is: a task, a manifest or a typed document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from penstock.dialects.document.read import document
from penstock.dialects.document.types import AskedVolume, NounDocument, WorkloadDocument
from penstock.dialects.manifest.job import Services
from penstock.dialects.manifest.read import (
    CLAIM,
    INSTEAD,
    JOB,
    POD,
    SERVICE,
    STATUS,
    VERSIONS,
    ManifestVolume,
    ManifestWorkload,
    Read,
    manifest,
    services,
)
from penstock.dialects.reader import FieldRules, Place, ReadContext, as_it_is, read_fields, sequence, text
from penstock.dialects.task.read import Task, task_of
from penstock.dialects.yaml import Node, Pairs, Scalar, invalid, read_mappings
from penstock.domain.kinds import APPLIED, READ_ONLY, kind_named
from penstock.domain.names import shorten
from penstock.errors import Problem

LIST = "List"
VERSION_OF = {**VERSIONS, LIST: "v1", **dict.fromkeys(APPLIED, "v1")}
KINDS = f"the kinds are {', '.join(APPLIED)}, and Kubernetes' {POD}, {JOB}, {CLAIM} and {LIST}; a task has no kind"


class TaskDocument(NamedTuple):
    """A task as `penstock jobs submit` takes it."""

    task: Task


Document = TaskDocument | ManifestWorkload | ManifestVolume | WorkloadDocument | NounDocument


class ReadResult(NamedTuple):
    """The documents of a text, and the problems of those that are wrong."""

    documents: list[Document]
    """The valid documents, in the order of the text."""
    problems: list[Problem]
    """Every problem of every other document."""
    doubtful: set[str]
    """Names in the other documents: whether such a thing is missing from the text cannot be told."""


def read_documents(text: str | bytes, source: str) -> list[Document]:
    """Return the documents in the order of the text; raise Invalid with every problem of every document."""
    read = read_whole(text, source)
    if problems := [*read.problems, *twice(read.documents)]:
        raise invalid(source, problems)
    return read.documents


def read_whole(text: str | bytes, source: str) -> ReadResult:
    """Read a text; raise Invalid only for problems of the text as a whole."""
    tops, problems, doubtful = read_mappings(text, source)
    opened = [one for top in tops for one in _opened(top, source, problems)]
    known = services(opened, source, problems)
    found = []
    for one in opened:
        before = len(problems)
        read = _document(one, source, problems, known)
        if len(problems) > before:
            doubtful.update(_names(one[0]))
        elif read is not None:
            found.append(read)
    return ReadResult(found, problems, doubtful)


def _names(top: Pairs) -> Iterator[str]:
    """Yield the names that an invalid document gives itself."""
    for key, node in top.items:
        if key.text == "name" and isinstance(node, Scalar):
            yield node.text
        elif key.text == "metadata" and isinstance(node, Pairs):
            yield from _names(node)


def _opened(top: Pairs, source: str, problems: list[Problem], path: str = "") -> Iterator[Read]:
    """Yield the document, or the items in the place of a List. A task has no kind."""
    context = ReadContext(source)
    keys = {key.text: node for key, node in top.items}
    if "kind" not in keys and "apiVersion" not in keys and not {"metadata", "spec"} <= keys.keys():
        yield top, "", path
        return
    kind = _kind(context, keys, top, path)
    inside = read_fields(context, top, path, LISTED).get("items") if kind == LIST else None
    items = sequence(context, *inside) if inside else []
    problems += context.problems
    if kind is not None and kind != LIST:
        yield top, kind, path
    for node, here in items:
        if isinstance(node, Pairs):
            yield from _opened(node, source, problems, here)
        else:
            problems.append(Problem("must be a mapping", where=context.where(node), field=here))


def _kind(context: ReadContext, keys: Mapping[str, Node], top: Pairs, path: str) -> str | None:
    prefix = f"{path}." if path else ""
    kind = keys.get("kind")
    if not isinstance(kind, Scalar) or not kind.text:
        context.problem("is missing", kind or top, f"{prefix}kind", KINDS)
        return None
    if kind.text not in VERSION_OF:
        _refuse_kind(context, kind, f"{prefix}kind")
        return None
    version, right = keys.get("apiVersion"), VERSION_OF[kind.text]
    if not isinstance(version, Scalar) or version.text != right:
        context.problem(f"must be '{right}' for a {kind.text}", version or top, f"{prefix}apiVersion", f"write {right}")
    return kind.text


def _refuse_kind(context: ReadContext, kind: Scalar, path: str) -> None:
    if kind.text in READ_ONLY:
        hint = f"penstock get {kind.text.lower()} shows them"
        context.problem(f"a {kind.text} is not applied: {READ_ONLY[kind.text]}", kind, path, hint)
        return
    instead = INSTEAD.get(kind.text)
    near = kind_named(kind.text) or next(iter(get_close_matches(kind.text[:60], VERSION_OF, n=1, cutoff=0.7)), None)
    hint = f"{instead}; {KINDS}" if instead else f"did you mean {near}? {KINDS}" if near else KINDS
    context.problem(f"'{shorten(kind.text)}' is not a kind Penstock knows", kind, path, hint)


def _document(one: Read, source: str, problems: list[Problem], known: Services) -> Document | None:
    top, kind, path = one
    if kind == SERVICE:
        return None
    context = ReadContext(source)
    read: Document | None
    if kind in APPLIED:
        read = document(context, top, kind, path)
    else:
        read = manifest(context, top, kind, path, known) if kind else _task(context, top, path)
    problems += context.problems
    return read


def _task(context: ReadContext, top: Pairs, path: str) -> TaskDocument | None:
    if path:
        context.problem("is missing", top, f"{path}.kind", KINDS)
        return None
    task = task_of(context, top)
    return TaskDocument(task) if task else None


def twice(found: Sequence[Document], home: str | None = None) -> list[Problem]:
    """Find documents of one kind and name, which would undo each other; `home` is the group of those that name none."""
    seen: set[tuple[str, str | None, str]] = set()
    problems = []
    for each in found:
        kind, group, name, (where, field) = identity(each, home)
        if name and (kind, group, name) in seen:
            problems.append(Problem(f"a {kind} '{name}' is in this file already", where=where, field=field))
        seen.add((kind, group, name))
    return problems


def identity(each: Document, home: str | None = None) -> tuple[str, str | None, str, Place]:
    """Return a document's kind in plain words, its group if names are per group, its name, and the name's place."""
    if isinstance(each, NounDocument):
        group = each.group or home if isinstance(each.noun, AskedVolume) else None
        return each.kind.lower(), group, each.name, each.place("name")
    if isinstance(each, ManifestVolume):
        return "volume", home, each.claim.name, each.place("name")
    group = each.group if isinstance(each, WorkloadDocument) else None
    task = each.task
    return "workload", group or home, task.spec.name or "", (task.where("name"), task.field("name"))


def _list_metadata(context: ReadContext, node: Node, path: str) -> None:
    read_fields(context, node, path, LIST_METADATA)


LIST_METADATA = FieldRules(
    {}, dict.fromkeys(("resourceVersion", "continue", "selfLink"), STATUS["status"]), {"resourceVersion": {""}}
)
LISTED = FieldRules({"apiVersion": text, "kind": text, "items": as_it_is, "metadata": _list_metadata})
