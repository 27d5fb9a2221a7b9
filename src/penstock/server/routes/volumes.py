"""Routes for volumes and storage classes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from penstock.domain.policy import Kind
from penstock.domain.volumes import Phase
from penstock.server.identity import Asked, of_everything, require_all_groups
from penstock.server.routes.bodies import Key
from penstock.server.routes.paging import Cursor, Limit, Listing, answer, page_of, page_of_few, until_changed, words
from penstock.wire.pages import Deleted, Events
from penstock.wire.requests import NewVolume, Resize
from penstock.wire.volumes import StorageClassPage, VolumePage, VolumeView

router = APIRouter(tags=["volumes"])
PHASES = (Phase.Pending, Phase.Bound, Phase.Lost)
Usage = Annotated[bool, Query(description="count the bytes in use")]


@router.post("/v1/volumes", status_code=201, response_model=VolumeView)
async def create_volume(body: NewVolume, asked: Asked, key: Key = None) -> Response:
    """Creates a volume."""
    return answer(await asked.parts.volumes.create(asked.caller, body, key), 201)


class VolumeListing(Listing):
    usage: Annotated[bool, Field(description="count the bytes in use")] = False


@router.get("/v1/volumes", response_model=VolumePage, openapi_extra=VolumeListing.documented())
async def list_volumes(request: Request, asked: Asked) -> Response:
    """Lists volumes, newest first."""
    query = VolumeListing.of(request)
    if query.all_users:
        require_all_groups(asked.caller, Kind.Volume)
    phases = words(query.status, "status", PHASES)
    caller = await until_changed(asked, query)
    version = asked.parts.db.version
    views, after = await asked.parts.volumes.page(
        of_everything(caller) if query.everything else caller,
        everyone=query.all_users,
        name=query.name,
        phases=[Phase(word) for word in phases] if phases else None,
        usage=query.usage,
        limit=query.limit,
        cursor=query.cursor,
    )
    return page_of(views, after, version)


@router.get("/v1/volumes/{ref}", response_model=VolumeView)
async def get_volume(ref: str, asked: Asked, usage: Usage = False) -> Response:
    """One volume, by id or name."""
    return answer(await asked.parts.volumes.get(asked.caller, ref, usage=usage))


@router.post("/v1/volumes/{ref}/resize", response_model=VolumeView)
async def resize_volume(ref: str, body: Resize, asked: Asked) -> Response:
    """Makes a volume larger, where its storage class allows that. It never gets smaller."""
    return answer(await asked.parts.volumes.resize(asked.caller, ref, body.size))


@router.get("/v1/volumes/{ref}/events", response_model=Events)
async def volume_events(ref: str, asked: Asked) -> Response:
    """All that happened to it, in order, as far as the engine remembers."""
    return answer(Events(items=await asked.parts.events.of_volume(asked.caller, ref)))


@router.delete("/v1/volumes/{ref}", response_model=Deleted)
async def delete_volume(ref: str, asked: Asked) -> Response:
    """Destroys a volume and its data. Refused while a workload uses it."""
    volume = await asked.parts.volumes.delete(asked.caller, ref)
    return answer(Deleted(id=volume.id, name=volume.name, message=volume.message), 202 if volume.message else 200)


@router.get("/v1/storage-classes", response_model=StorageClassPage)
async def list_storage_classes(
    asked: Asked, name: str | None = None, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Where volumes can be made."""
    return page_of_few(await asked.parts.volumes.classes(), name, limit, cursor, asked.parts.db.version)
