"""The paths and bodies of k8s-cli, each a thin translation of /v1."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import Field
from starlette.responses import StreamingResponse

from penstock.dialects.task.read import read_task_json
from penstock.domain.model import iso, now
from penstock.domain.policy import Kind, Verb
from penstock.domain.states import ENDED, State
from penstock.domain.volumes import Phase
from penstock.domain.workloads import Unit
from penstock.engines.base import LogQuery
from penstock.server.identity import Authorized, require_all_groups
from penstock.server.routes.messages import AllUsers, Key, ListQuery, words
from penstock.server.routes.volumes import PHASES
from penstock.server.routes.workloads import STATUSES
from penstock.services.workloads.workloads import LARGEST_PAGE
from penstock.wire.requests import NewVolume, Submission
from penstock.wire.volumes import VolumeView
from penstock.wire.workloads import DryRun, Summary

router = APIRouter(tags=["k8s-cli"])
Json = dict[str, Any]
TaskBody = Annotated[dict[str, Any], Body(examples=[{"name": "hello", "run": "echo hello"}])]


class TaskListQuery(ListQuery):
    """k8s-cli's lists have everything; with a limit they are a page, with `next`."""

    limit: Annotated[int | None, Field(ge=1, le=500, description="how many at most; all if it is missing")] = None  # type: ignore[assignment]

    async def answer(
        self, noun: str, page: Callable[[int, str | None], Awaitable[tuple[list[Json], str | None]]]
    ) -> Json:
        """Return the page that was asked for, else all of them together."""
        found, cursor = await page(self.limit or LARGEST_PAGE, self.cursor)
        if self.limit:
            return {noun: found, "next": cursor}
        while cursor:
            more, cursor = await page(LARGEST_PAGE, cursor)
            found += more
        return {noun: found}


Asked = Annotated[TaskListQuery, Query()]


@router.post("/tasks/submit")
async def submit_task(call: Authorized, body: TaskBody, key: Key = None) -> Json:
    """Submits a task definition given as JSON."""
    task = read_task_json(body)
    made = await call.parts.submit.task(call.caller, task, Submission.model_validate({"text": json.dumps(body)}), key)
    assert not isinstance(made, DryRun)
    return {"task_id": made.id, "status": "submitted", "message": f"Task submitted successfully with ID: {made.id}"}


@router.get("/tasks")
async def list_tasks(call: Authorized, query: Asked) -> Json:
    """Every task of the caller, newest first; or a page of them."""
    if query.all_users:
        require_all_groups(call.caller, Kind.Workload)
    statuses = words(query.status, "status", STATUSES)

    async def page(limit: int, cursor: str | None) -> tuple[list[Json], str | None]:
        found, after = await call.parts.workloads.whole_page(
            call.caller, everyone=query.all_users, name=query.name, statuses=statuses, limit=limit, cursor=cursor
        )
        return [_task(summary, units) for summary, units in found], after

    return await query.answer("tasks", page)


@router.post("/tasks/stop")
async def stop_tasks(call: Authorized, all_users: AllUsers = False) -> Json:
    """Stops all active tasks of the caller, or of everyone."""
    if all_users:
        require_all_groups(call.caller, Kind.Workload, Verb.stop)
    stopped = await call.parts.workloads.stop_all(call.caller, everyone=all_users)
    whose = " for all users" if all_users else ""
    return {"count": len(stopped), "status": "stopped", "message": f"Stopped {len(stopped)} tasks{whose}"}


@router.get("/tasks/{task_id}")
async def get_task(task_id: str, call: Authorized) -> Json:
    """One task."""
    view = await call.parts.workloads.get(call.caller, task_id)
    return _task(view, view.units)


@router.get("/tasks/{task_id}/logs", response_class=StreamingResponse)
async def follow_task(task_id: str, call: Authorized) -> StreamingResponse:
    """The log, followed to the end."""
    stream = await call.parts.logs.open(call.caller, task_id, LogQuery(follow=True))
    return StreamingResponse(stream, media_type="text/plain; charset=utf-8")


@router.post("/tasks/{task_id}/stop")
async def stop_task(task_id: str, call: Authorized) -> Json:
    """Stops one task."""
    summary = await call.parts.workloads.stop(call.caller, task_id)
    return {"task_id": summary.id, "status": "stopped", "message": f"Task {summary.id} stopped successfully"}


@router.post("/volumes/create")
async def create_volume(body: NewVolume, call: Authorized, key: Key = None) -> Json:
    """Creates a volume."""
    view = await call.parts.volumes.create(call.caller, body, key)
    return {"volume_id": view.id, "status": "created", "message": f"Volume created successfully with ID: {view.id}"}


@router.get("/volumes")
async def list_volumes(call: Authorized, query: Asked) -> Json:
    """Every volume of the caller, newest first; or a page of them."""
    if query.all_users:
        require_all_groups(call.caller, Kind.Volume)
    phases = [Phase(word) for word in words(query.status, "status", PHASES) or ()]

    async def page(limit: int, cursor: str | None) -> tuple[list[Json], str | None]:
        views, after = await call.parts.volumes.page(
            call.caller, everyone=query.all_users, name=query.name, phases=phases, limit=limit, cursor=cursor
        )
        return [_volume(view) for view in views], after

    return await query.answer("volumes", page)


@router.get("/volumes/{volume_id}")
async def get_volume(volume_id: str, call: Authorized) -> Json:
    """One volume."""
    return _volume(await call.parts.volumes.get(call.caller, volume_id))


@router.delete("/volumes/{volume_id}")
async def delete_volume(volume_id: str, call: Authorized) -> Json:
    """Destroys a volume and its data."""
    volume = await call.parts.volumes.delete(call.caller, volume_id)
    return {"volume_id": volume.id, "status": "deleted", "message": f"Volume {volume.id} deleted successfully"}


def _volume(view: VolumeView) -> Json:
    return {
        "volume_id": view.id,
        "name": view.name,
        "size": view.size,
        "storage_class": view.storage_class,
        "access_modes": list(view.access_modes),
        "status": view.status.value,
        "created_at": iso(view.created_at),
        "username": view.user,
        "metadata": {"pvc_name": view.object_name, "namespace": view.namespace},
    }


def _task(task: Summary, units: tuple[Unit, ...]) -> Json:
    return {
        "task_id": task.id,
        "name": task.name,
        "status": task.status,
        "created_at": iso(task.created_at),
        "updated_at": iso(now()),
        "username": task.user,
        "metadata": _metadata(task, units),
    }


def _metadata(task: Summary, units: tuple[Unit, ...]) -> Json:
    """Return what k8s-cli shows of a task: counts of its nodes, and the reason of its state."""
    job = f"{task.name}-{task.id}"
    states = [unit.state for unit in units]
    parts = task.array.count if task.array else task.nodes
    running, succeeded = states.count(State.RUNNING), states.count(State.EXITED)
    failed = sum(state in ENDED for state in states) - succeeded
    return {
        "job_name": job,
        "namespace": task.namespace or task.group,
        "num_nodes": task.nodes,
        "node_jobs": [f"{job}-node-{rank}" for rank in range(task.nodes)] if task.nodes > 1 else [job],
        "succeeded_nodes": succeeded,
        "failed_nodes": failed,
        "running_nodes": running,
        "pending_nodes": parts - running - succeeded - failed,
        "reason": task.reason,
        "message": task.message,
    }
