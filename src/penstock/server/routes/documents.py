"""/v1/apply, /v1/delete, /v1/stop and /v1/convert: whole texts of documents. What reads them is imported here."""

from __future__ import annotations

from fastapi import APIRouter, Response

from penstock.server.identity import Asked
from penstock.server.routes.bodies import Key
from penstock.server.routes.paging import answer
from penstock.wire import Application, ApplyResults, Converted, Documents

router = APIRouter(tags=["documents"])


@router.post("/v1/apply", response_model=ApplyResults)
async def apply(body: Application, asked: Asked, key: Key = None) -> Response:
    """Makes what the text describes: Pod, Job and PersistentVolumeClaim manifests, and tasks. Everything is checked
    first; what is there and the same is not changed."""
    from penstock.services.apply import Apply

    parts = asked.parts
    applying = Apply(parts.db, parts.submit, parts.volumes, parts.uploads, parts.people, parts.places)
    return answer(ApplyResults(results=await applying.apply(asked.caller, body, key)))


@router.post("/v1/delete", response_model=ApplyResults)
async def delete(body: Documents, asked: Asked) -> Response:
    """Stops and deletes what the text describes, by name; volumes with their data."""
    from penstock.services.unapply import Unapply

    parts = asked.parts
    undoing = Unapply(parts.db, parts.workloads, parts.volumes, parts.people, parts.places)
    return answer(ApplyResults(results=await undoing.delete(asked.caller, body)))


@router.post("/v1/stop", response_model=ApplyResults)
async def stop(body: Documents, asked: Asked) -> Response:
    """Stops the workloads the text describes, by name. They stay listed, and volumes stay as they are."""
    from penstock.services.unapply import Unapply

    parts = asked.parts
    stopping = Unapply(parts.db, parts.workloads, parts.volumes, parts.people, parts.places)
    return answer(ApplyResults(results=await stopping.stop(asked.caller, body)))


@router.post("/v1/convert", response_model=Converted)
async def convert(body: Documents, asked: Asked) -> Response:
    """The task for a manifest, the manifest for a task. Nothing is made."""
    from penstock.dialects.convert import convert

    image = asked.parts.settings.kubernetes_image
    return answer(Converted(text=convert(body.text, body.source, image=image)))
