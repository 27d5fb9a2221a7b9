"""Read one document into its noun and report every problem with its place."""

from __future__ import annotations

from collections.abc import Callable

from penstock.dialects.document.node import node_spec
from penstock.dialects.document.people import group_spec, user_spec
from penstock.dialects.document.types import EXAMPLES, DocumentMetadata, Noun, NounDocument, WorkloadDocument, metadata
from penstock.dialects.document.volumes import storage_spec, volume_spec
from penstock.dialects.document.workload import workload_spec
from penstock.dialects.reader import FieldRules, ReadContext, as_it_is, below, placed, read_fields, text
from penstock.dialects.yaml import Node, Pairs
from penstock.domain.kinds import APPLIED

WORKLOAD, GROUP = "Workload", "Group"
NOUNS: dict[str, Callable[[ReadContext, DocumentMetadata, Node, str], Noun | None]] = {
    "Volume": volume_spec,
    "Storage": storage_spec,
    "Node": node_spec,
    "Group": group_spec,
    "User": user_spec,
}


def document(context: ReadContext, top: Pairs, kind: str, path: str) -> WorkloadDocument | NounDocument | None:
    """Read a document; return None if there is a problem, which is noted in `context`."""
    context.places[()] = (context.where(top), kind)
    said = read_fields(context, top, path, SHAPES[kind])
    about, spec = said.get("metadata", DocumentMetadata()), said.get("spec")
    if spec is None and kind == GROUP:
        spec = Pairs([], top.mark), below(path, "spec")
    if spec is None:
        return None
    if kind == WORKLOAD:
        return workload_spec(context, about, *spec)
    noun = NOUNS[kind](context, about, *spec)
    return None if noun is None else NounDocument(kind, noun.name, about.group, noun, context.places)


STATUS = {"status": ("the server wrote it", "remove it")}
SHAPES = {
    kind: FieldRules(
        {"apiVersion": text, "kind": placed(text, "kind"), "metadata": metadata(kind), "spec": as_it_is},
        STATUS,
        required={"metadata": f"for example 'metadata: {{name: {EXAMPLES[kind]}}}'"}
        | ({} if kind == GROUP else {"spec": None}),
    )
    for kind in APPLIED
}
