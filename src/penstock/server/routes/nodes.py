"""Routes for nodes, GPUs and storages."""

from __future__ import annotations

from fastapi import APIRouter, Response

from penstock.domain.policy import Kind
from penstock.server.identity import Authorized
from penstock.server.routes.messages import Named, answer, one_page, page_of, page_of_few
from penstock.services.infrastructure import lost_message
from penstock.wire.nodes import GpuPage, NodePage
from penstock.wire.pages import Deleted
from penstock.wire.volumes import StoragePage, StorageView

router = APIRouter(tags=["nodes"])


@router.get("/v1/nodes", response_model=NodePage)
async def nodes(call: Authorized, query: Named) -> Response:
    """The nodes, what is free on them, and who holds the GPUs."""
    shown, after = one_page(await call.parts.nodes.seen_by(call.caller), query)
    return page_of(await call.parts.nodes.views(call.caller, shown), after, call.parts.db.version)


@router.get("/v1/gpus", response_model=GpuPage)
async def gpus(call: Authorized, query: Named) -> Response:
    """The GPUs by node and product: how many there are, how many are free, and who has the rest. `name` is
    `node/product`."""
    shown, after = one_page(await call.parts.nodes.products(call.caller), query)
    return page_of(await call.parts.nodes.gpus(call.caller, shown), after, call.parts.db.version)


@router.delete("/v1/nodes/{name}", response_model=Deleted)
async def delete_node(name: str, call: Authorized, force: bool = False) -> Response:
    """Deletes a node on which nothing runs; with `force` also one that does not answer: what it ran is then UNKNOWN."""
    lost = await call.parts.infrastructure.remove(call.caller, Kind.Node, name, force=force)
    return answer(Deleted(id=name, name=name, message=lost_message(lost)))


@router.get("/v1/storages", response_model=StoragePage)
async def list_storages(call: Authorized, query: Named) -> Response:
    """The NFS exports that admins declared, and the disks of nodes."""
    views = [StorageView.of(storage) for storage in call.parts.infrastructure.storages(call.caller)]
    return page_of_few(call, views, query)


@router.delete("/v1/storages/{name}", response_model=Deleted)
async def delete_storage(name: str, call: Authorized) -> Response:
    """Deletes a storage that no volume is on. Its data stays."""
    await call.parts.infrastructure.remove(call.caller, Kind.Storage, name)
    return answer(Deleted(id=name, name=name))
