"""Routes for storages, and for deleting nodes and storages."""

from __future__ import annotations

from fastapi import APIRouter, Response

from penstock.domain.policy import Kind
from penstock.server.identity import Asked
from penstock.server.routes.paging import Cursor, Limit, answer, page_of_few
from penstock.services.infrastructure import lost_message
from penstock.wire.pages import Deleted
from penstock.wire.volumes import StoragePage, StorageView

router = APIRouter(tags=["places"])


@router.get("/v1/storages", response_model=StoragePage)
async def list_storages(asked: Asked, name: str | None = None, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """NFS exports that admins wrote down, and the disks of nodes."""
    views = [StorageView.of(storage) for storage in asked.parts.infrastructure.storages(asked.caller)]
    return page_of_few(views, name, limit, cursor, asked.parts.db.version)


@router.delete("/v1/storages/{name}", response_model=Deleted)
async def delete_storage(name: str, asked: Asked) -> Response:
    """Forgets a storage that no volume is on. What is kept there stays."""
    await asked.parts.infrastructure.remove(asked.caller, Kind.Storage, name)
    return answer(Deleted(id=name, name=name))


@router.delete("/v1/nodes/{name}", response_model=Deleted)
async def delete_node(name: str, asked: Asked, force: bool = False) -> Response:
    """Forgets a node on which nothing runs; with `force` also one that does not answer: what it had is then UNKNOWN."""
    lost = await asked.parts.infrastructure.remove(asked.caller, Kind.Node, name, force=force)
    return answer(Deleted(id=name, name=name, message=lost_message(lost)))
