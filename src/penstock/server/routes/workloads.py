"""Routes for workloads and uploads."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from penstock.domain.policy import Kind, Verb
from penstock.domain.states import SHORT, State
from penstock.engines.base import LogQuery
from penstock.server.identity import Authorized, require_all_groups
from penstock.server.routes.messages import (
    KEY,
    AllUsers,
    Key,
    ListQuery,
    answer,
    documented,
    page,
    read_body,
    resolve_caller,
    words,
)
from penstock.wire.pages import Deleted, Events, Uploaded
from penstock.wire.requests import Retry, Submission
from penstock.wire.workloads import DryRun, Summary, SummaryPage, WorkloadView

router = APIRouter(tags=["workloads"])


@router.post(
    "/v1/workloads",
    status_code=201,
    response_model=WorkloadView,
    responses={200: {"model": DryRun, "description": "what a dry run found"}},
    openapi_extra=documented(Submission),
)
async def submit_workload(request: Request, call: Authorized) -> Response:
    """Submits a task as written; with `dry_run` only checks whether it is valid and would fit now."""
    body = await read_body(Submission, request)
    made = await call.parts.submit.text(call.caller, body, request.headers.get(KEY))
    return answer(made, 200 if isinstance(made, DryRun) else 201)


class WorkloadListQuery(ListQuery):
    state: Annotated[str | None, Field(description="only those in these states of the life cycle")] = None


STATUSES = sorted(set(SHORT.values()))


@router.get("/v1/workloads", response_model=SummaryPage)
async def list_workloads(call: Authorized, query: Annotated[WorkloadListQuery, Query()]) -> Response:
    """Lists workloads, newest first."""
    statuses = words(query.status, "status", STATUSES)
    states = [State(word) for word in words(query.state, "state", list(State)) or ()]
    caller, version = await resolve_caller(call, query, Kind.Workload)
    items, after = await call.parts.workloads.page(
        caller,
        everyone=query.all_users,
        name=query.name,
        states=states or None,
        statuses=statuses,
        limit=query.limit,
        cursor=query.cursor,
    )
    return page(items, after, version)


@router.post("/v1/workloads/stop", response_model=SummaryPage)
async def stop_all_workloads(call: Authorized, all_users: AllUsers = False) -> Response:
    """Stops every active workload of the caller, or of everyone."""
    if all_users:
        require_all_groups(call.caller, Kind.Workload, Verb.stop)
    stopped = await call.parts.workloads.stop_all(call.caller, everyone=all_users)
    return page([summary.model_dump_json() for summary in stopped], None, call.parts.db.version)


@router.get("/v1/workloads/{ref}", response_model=WorkloadView)
async def get_workload(ref: str, call: Authorized) -> Response:
    """One workload with its history, by id or name."""
    return answer(await call.parts.workloads.get(call.caller, ref))


@router.get("/v1/workloads/{ref}/wait", response_model=WorkloadView)
async def wait_for_workload(ref: str, call: Authorized, timeout: Annotated[float, Query(ge=0, le=60)] = 30) -> Response:
    """Answers when the workload has ended, or at the timeout with its state then."""
    view = await call.parts.workloads.wait(call.caller, ref, timeout)
    call.parts.people.require_still(call.caller, Verb.get, Kind.Workload, view.group)
    return answer(view)


@router.get("/v1/workloads/{ref}/logs", response_class=StreamingResponse)
async def stream_logs(
    ref: str,
    call: Authorized,
    follow: bool = False,
    tail: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
    since: datetime | None = None,
    node: Annotated[int | None, Query(ge=0)] = None,
    index: Annotated[int | None, Query(ge=0)] = None,
    attempt: Annotated[int | None, Query(ge=1)] = None,
) -> StreamingResponse:
    """The log, as the program wrote it; several nodes have `node-<i> | ` before each line, an array `index-<i> | `.

    Without `attempt` that of all attempts, one after the other.
    """
    query = LogQuery(follow=follow, tail=tail, since=since)
    part = node if index is None else index
    stream = await call.parts.logs.open(call.caller, ref, query, part, attempt)
    return StreamingResponse(stream, media_type="text/plain; charset=utf-8")


@router.post("/v1/workloads/{ref}/stop", response_model=Summary)
async def stop_workload(ref: str, call: Authorized) -> Response:
    """Stops a workload: TERM, a grace time, KILL. It stays listed, with its logs."""
    return answer(await call.parts.workloads.stop(call.caller, ref))


@router.post("/v1/workloads/{ref}/retry", response_model=WorkloadView)
async def retry_workload(ref: str, body: Retry, call: Authorized, key: Key = None) -> Response:
    """Starts another attempt of a workload that failed or was stopped; of an array, only what did not complete."""
    return answer(await call.parts.retry.retry(call.caller, ref, body, key))


@router.get("/v1/workloads/{ref}/events", response_model=Events)
async def workload_events(ref: str, call: Authorized) -> Response:
    """The events of a workload, in order: its states, and what the engine saw."""
    return answer(Events(items=await call.parts.events.of_workload(call.caller, ref)))


@router.delete("/v1/workloads/{ref}", response_model=Deleted)
async def delete_workload(ref: str, call: Authorized) -> Response:
    """Deletes an ended workload and its logs; by name, all of that name."""
    gone = await call.parts.workloads.delete(call.caller, ref)
    message = f"all {len(gone)} of that name" if len(gone) > 1 else None
    return answer(Deleted(id=gone[0].id, name=gone[0].name, message=message))


@router.put("/v1/uploads", status_code=201, response_model=Uploaded)
async def upload(request: Request, call: Authorized) -> Response:
    """Takes a packed workdir (.tar.gz); its id goes into `files` of the submission."""
    return answer(Uploaded(id=await call.parts.uploads.save(call.caller.user, request.stream())), 201)
