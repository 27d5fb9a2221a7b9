"""Routes for inspect, top and port-forward."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response, WebSocket
from pydantic import Field

from penstock.domain.policy import Kind
from penstock.server.identity import Authorized
from penstock.server.routes.exec import Part, ProgramSocket, given, needs_websocket, over
from penstock.server.routes.messages import NameQuery, answer, one_page, page_of
from penstock.wire.measures import Inspection, MeasureView, NodeMeasurePage
from penstock.wire.pages import ErrorBody
from penstock.wire.workloads import Explained

router = APIRouter(tags=["inspect"])

Port = Annotated[int, Query(ge=1, le=65535, description="where a program of the workload listens")]
STOPPED = "The server is stopping, and the connection was ended with it."


@router.get("/v1/workloads/{ref}/inspect", response_model=Inspection)
async def inspect_workload(ref: str, call: Authorized, attempt: Annotated[int | None, Query(ge=1)] = None) -> Response:
    """What the engine knows of a workload, in the engine's own words: processes and limits of a machine, objects of a
    cluster. Values of variables that look secret are `***`."""
    return answer(await call.parts.inspect.inspect(call.caller, ref, attempt))


@router.get("/v1/workloads/{ref}/explain", response_model=Explained)
async def explain_workload(ref: str, call: Authorized) -> Response:
    """Why a workload waits: in one sentence, and for each node its owner may use, what is in the way. Where a cluster
    decides, there are no nodes to tell of."""
    return answer(await call.parts.inspect.explain(call.caller, ref))


@router.get("/v1/workloads/{ref}/top", response_model=MeasureView)
async def measure_workload(ref: str, call: Authorized, part: Part = None) -> Response:
    """What a workload uses now: processes, CPU, memory, GPUs, disk and network, measured over half a second. What
    cannot be seen from outside is null."""
    return answer(await call.parts.inspect.top(call.caller, ref, part))


class MeasureQuery(NameQuery):
    wait: Annotated[float, Field(ge=0, le=60, description="seconds to wait at most, until all is known")] = 0


@router.get("/v1/nodes/top", response_model=NodeMeasurePage)
async def measure_nodes(call: Authorized, query: Annotated[MeasureQuery, Query()]) -> Response:
    """What the nodes do now, all who use them together: CPU, load, memory, GPUs, disks and networks. What
    cannot be seen is null. A cluster tells what disks and networks do about ten seconds after it was first asked: with
    `wait` it is waited for that."""
    shown, after = one_page(await call.parts.nodes.seen_by(call.caller), query)
    measured = await call.parts.inspect.nodes(call.caller, [node.name for node in shown], query.wait)
    return page_of(measured, after, call.parts.db.version)


@router.websocket("/v1/workloads/{ref}/connect")
async def connect_to_workload(socket: WebSocket, ref: str, call: Authorized, port: Port, part: Part = None) -> None:
    line, sessions = ProgramSocket(socket, STOPPED), call.parts.sessions
    async with sessions.connect(call.caller, ref, part, port) as (workload, session):
        await line.accept()
        result = await line.carry(
            given(session), over(call, Kind.Workload, workload.group, partial(sessions.require_entry, workload))
        )
    await line.end(result)


@router.get("/v1/workloads/{ref}/connect", status_code=400, response_model=ErrorBody)
async def connect_without_websocket(ref: str, call: Authorized, port: Port, part: Part = None) -> Response:
    """A WebSocket like that of `exec`, to a program of the workload that listens on the port: 0 is what is sent to it,
    1 what it answers. One for each connection. Nothing but programs of the workload itself can be reached."""
    raise needs_websocket()
