"""/v1/volumes and /v1/storage-classes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from penstock.domain.policy import Kind
from penstock.domain.volumes import Phase
from penstock.server.identity import CallerOf, PartsOf, require_all_groups
from penstock.server.routes.paging import Cursor, Limit, Listing, answer, page_of, page_of_few, until_changed, words
from penstock.wire import Deleted, NewVolume, StorageClassPage, VolumePage, VolumeView

router = APIRouter(tags=["volumes"])
Key = Annotated[str | None, Header(alias="Idempotency-Key", description="the same key makes the same thing once")]
PHASES = (Phase.Pending, Phase.Bound, Phase.Lost)
Usage = Annotated[bool, Query(description="count the bytes in use")]


@router.post("/v1/volumes", status_code=201, response_model=VolumeView)
async def create_volume(body: NewVolume, caller: CallerOf, parts: PartsOf, key: Key = None) -> Response:
    """Creates a volume."""
    return answer(await parts.volumes.create(caller, body, key), 201)


class VolumeListing(Listing):
    usage: Annotated[bool, Field(description="count the bytes in use")] = False


@router.get("/v1/volumes", response_model=VolumePage, openapi_extra=VolumeListing.documented())
async def list_volumes(request: Request, caller: CallerOf, parts: PartsOf) -> Response:
    """Lists volumes, newest first."""
    query = VolumeListing.of(request)
    if query.all_users:
        require_all_groups(caller, Kind.Volume)
    phases = words(query.status, "status", PHASES)
    await until_changed(parts.db, query)
    version = parts.db.version
    views, after = await parts.volumes.page(
        caller,
        everyone=query.all_users,
        name=query.name,
        phases=[Phase(word) for word in phases] if phases else None,
        usage=query.usage,
        limit=query.limit,
        cursor=query.cursor,
    )
    return page_of(views, after, version)


@router.get("/v1/volumes/{ref}", response_model=VolumeView)
async def get_volume(ref: str, caller: CallerOf, parts: PartsOf, usage: Usage = False) -> Response:
    """One volume, by id or name."""
    return answer(await parts.volumes.get(caller, ref, usage=usage))


@router.delete("/v1/volumes/{ref}", response_model=Deleted)
async def delete_volume(ref: str, caller: CallerOf, parts: PartsOf) -> Response:
    """Destroys a volume and its data. Refused while a workload uses it."""
    volume = await parts.volumes.delete(caller, ref)
    return answer(Deleted(id=volume.id, name=volume.name))


@router.get("/v1/storage-classes", response_model=StorageClassPage)
async def list_storage_classes(
    parts: PartsOf, name: str | None = None, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Where volumes can be made."""
    return page_of_few(await parts.volumes.classes(), name, limit, cursor, parts.db.version)
