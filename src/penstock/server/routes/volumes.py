"""Routes for volumes and storage classes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from penstock.domain.policy import Kind
from penstock.domain.volumes import Phase
from penstock.server.identity import Authorized
from penstock.server.routes.messages import Key, ListQuery, Named, answer, page_of, page_of_few, resolve_caller, words
from penstock.wire.pages import Deleted, Events
from penstock.wire.requests import NewVolume, Resize
from penstock.wire.volumes import StorageClassPage, VolumePage, VolumeView

router = APIRouter(tags=["volumes"])
PHASES = (Phase.Pending, Phase.Bound, Phase.Lost)
Usage = Annotated[bool, Query(description="count the bytes in use")]


@router.post("/v1/volumes", status_code=201, response_model=VolumeView)
async def create_volume(body: NewVolume, call: Authorized, key: Key = None) -> Response:
    """Creates a volume."""
    return answer(await call.parts.volumes.create(call.caller, body, key), 201)


class VolumeListQuery(ListQuery):
    usage: Annotated[bool, Field(description="count the bytes in use")] = False


@router.get("/v1/volumes", response_model=VolumePage)
async def list_volumes(call: Authorized, query: Annotated[VolumeListQuery, Query()]) -> Response:
    """Lists volumes, newest first."""
    phases = [Phase(word) for word in words(query.status, "status", PHASES) or ()]
    caller, version = await resolve_caller(call, query, Kind.Volume)
    views, after = await call.parts.volumes.page(
        caller,
        everyone=query.all_users,
        name=query.name,
        phases=phases or None,
        usage=query.usage,
        limit=query.limit,
        cursor=query.cursor,
    )
    return page_of(views, after, version)


@router.get("/v1/volumes/{ref}", response_model=VolumeView)
async def get_volume(ref: str, call: Authorized, usage: Usage = False) -> Response:
    """One volume, by id or name."""
    return answer(await call.parts.volumes.get(call.caller, ref, usage=usage))


@router.post("/v1/volumes/{ref}/resize", response_model=VolumeView)
async def resize_volume(ref: str, body: Resize, call: Authorized) -> Response:
    """Makes a volume larger, where its storage class allows that. It never gets smaller."""
    return answer(await call.parts.volumes.resize(call.caller, ref, body.size))


@router.get("/v1/volumes/{ref}/events", response_model=Events)
async def volume_events(ref: str, call: Authorized) -> Response:
    """The events of a volume, in order, as far as the engine remembers."""
    return answer(Events(items=await call.parts.events.of_volume(call.caller, ref)))


@router.delete("/v1/volumes/{ref}", response_model=Deleted)
async def delete_volume(ref: str, call: Authorized) -> Response:
    """Destroys a volume and its data. Refused while a workload uses it."""
    volume = await call.parts.volumes.delete(call.caller, ref)
    return answer(Deleted(id=volume.id, name=volume.name, message=volume.message), 202 if volume.message else 200)


@router.get("/v1/storage-classes", response_model=StorageClassPage)
async def list_storage_classes(call: Authorized, query: Named) -> Response:
    """The storage classes for volumes."""
    return page_of_few(call, await call.parts.volumes.classes(), query)
