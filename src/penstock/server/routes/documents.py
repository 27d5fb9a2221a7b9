"""Routes for texts of documents: apply, delete, stop, convert and export.
What reads and writes them is imported here.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query, Response

from penstock.server.identity import Authorized, of_everything
from penstock.server.parts import Parts
from penstock.server.routes.messages import Cursor, Everything, Key, Limit, NameQuery, answer, one_page, page_of
from penstock.wire.documents import DocumentPage
from penstock.wire.requests import Application, Conversion, Documents
from penstock.wire.workloads import ApplyResults, Converted

if TYPE_CHECKING:
    from penstock.services.documents.delete import Unapply

router = APIRouter(tags=["documents"])


@router.post("/v1/apply", response_model=ApplyResults)
async def apply(body: Application, call: Authorized, key: Key = None) -> Response:
    """Creates or updates what the text describes: documents, manifests and tasks. Everything is checked
    first; what exists and is the same is not changed."""
    from penstock.services.documents.apply import Apply

    parts = call.parts
    applying = Apply(
        parts.db,
        parts.submit,
        parts.volumes,
        parts.uploads,
        parts.people,
        parts.infrastructure,
        parts.audit,
        parts.queue,
    )
    results = await applying.apply(call.caller, body, key)
    return answer(ApplyResults(results=results, upload_limit_bytes=parts.uploads.limit if body.dry_run else None))


@router.post("/v1/delete", response_model=ApplyResults)
async def delete(body: Documents, call: Authorized, force: bool = False) -> Response:
    """Stops and deletes what the text describes, by name; volumes with their data; with `force` also nodes that do not
    answer."""
    return answer(ApplyResults(results=await _unapply(call.parts).delete(call.caller, body, force=force)))


@router.post("/v1/stop", response_model=ApplyResults)
async def stop(body: Documents, call: Authorized) -> Response:
    """Stops the workloads the text describes, by name. They stay listed, and volumes stay as they are."""
    return answer(ApplyResults(results=await _unapply(call.parts).stop(call.caller, body)))


def _unapply(parts: Parts) -> Unapply:
    from penstock.services.documents.delete import Unapply

    return Unapply(parts.db, parts.workloads, parts.volumes, parts.people, parts.infrastructure, parts.audit)


@router.post("/v1/convert", response_model=Converted)
async def convert(body: Conversion, call: Authorized) -> Response:
    """Rewrites a text as tasks, documents or Kubernetes manifests. Nothing is created."""
    from penstock.dialects.convert import ConvertTarget, convert

    image, to = call.parts.settings.kubernetes_image, ConvertTarget(body.to) if body.to else None
    claims = await call.parts.volumes.claims(call.caller)
    said = partial(convert, body.text, body.source, image=image, to=to, group=call.caller.group, claims=claims)
    return answer(Converted(text=await asyncio.to_thread(said)))


Applied = Annotated[
    Literal["Workload", "Node", "Group", "User", "Volume", "Storage"], Query(description="what documents are of")
]
Ref = Annotated[str | None, Query(max_length=253, description="only this one; a workload or volume by its id, too")]


@router.get("/v1/documents", response_model=DocumentPage)
async def list_documents(
    call: Authorized,
    kind: Applied,
    name: Ref = None,
    everything: Everything = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Exports documents that `apply` accepts again and finds not changed: the workloads and volumes that are
    listed, and the nodes, storages, groups and users that are written down."""
    from penstock.services.documents.export import PAGED, Export, document, refuse_unseen

    parts = call.parts
    caller = of_everything(call.caller) if everything else call.caller
    refuse_unseen(caller, kind)
    written = Export(parts.db, parts.people, parts.infrastructure)
    if kind in PAGED:
        found, after = await written.page(caller, kind, name, limit=limit, cursor=cursor)
    else:
        nouns, after = one_page(written.nouns(caller, kind), NameQuery(name=name, limit=limit, cursor=cursor))
        found = [document(kind, noun) for noun in nouns]
    return page_of(found, after, parts.db.version)
