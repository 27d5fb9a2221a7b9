"""The server about itself: health, metrics, who is asking, what there is, what is missing."""

from __future__ import annotations

import os
import signal

from fastapi import APIRouter, Response

from penstock import __version__
from penstock.domain.policy import is_admin
from penstock.domain.quantities import show_cpus
from penstock.server.identity import CallerOf, PartsOf
from penstock.server.routes.paging import Cursor, Limit, answer, page_of_few
from penstock.wire import CheckList, GpuView, Health, NodePage, NodeView, ServerView, Whoami

router = APIRouter(tags=["server"])


@router.get("/", response_model=Health)
async def root() -> Response:
    """Says what this is."""
    return answer(Health(service="k8s-cli-api", version=__version__))


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Answers as soon as the server can work."""
    return answer(Health(service="penstock", version=__version__))


@router.get("/metrics")
async def metrics(parts: PartsOf) -> Response:
    """Prometheus text."""
    from penstock.server.metrics import exposition

    text, media_type = exposition(await parts.workloads.counts(), parts.reconciler)
    return Response(text, media_type=media_type)


@router.get("/v1/whoami", response_model=Whoami)
async def whoami(caller: CallerOf) -> Response:
    """Who the server takes the caller for, and how it knows."""
    return answer(
        Whoami(user=caller.user, group=caller.group, admin=is_admin(caller), proof=caller.proof, uid=caller.uid)
    )


@router.get("/v1/server", response_model=ServerView)
async def server(parts: PartsOf) -> Response:
    """What this server is, where it listens, where its data is."""
    settings = parts.settings
    return answer(
        ServerView(
            version=__version__,
            pid=os.getpid(),
            mode=settings.mode,
            engine=settings.engine,
            socket=str(settings.socket_path),
            address=parts.address,
            auth=settings.auth,
            data_dir=str(settings.data_dir),
            started_at=parts.started_at,
        )
    )


@router.post("/v1/server/stop", status_code=202, response_model=Health)
async def stop_server() -> Response:
    """Stops the server. Jobs that run go on."""
    os.kill(os.getpid(), signal.SIGTERM)
    return answer(Health(status="stopping", service="penstock", version=__version__), 202)


@router.get("/v1/doctor", response_model=CheckList)
async def doctor(parts: PartsOf) -> Response:
    """What is installed, what is missing, what works."""
    return answer(CheckList(checks=tuple(await parts.engine.checks())))


@router.get("/v1/nodes", response_model=NodePage)
async def nodes(parts: PartsOf, name: str | None = None, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """What there is to run on, and what of it is free."""
    holders, room = parts.reconciler.holders(), parts.reconciler.room()
    views = [
        NodeView(
            name=node.name,
            cpus=show_cpus(node.cpus_milli),
            cpus_free=show_cpus(max(room.cpus_milli, 0)),
            memory_bytes=node.memory_bytes,
            memory_free_bytes=max(room.memory_bytes, 0),
            gpus=tuple(GpuView(**gpu.model_dump(), workload=holders.get(gpu.uuid)) for gpu in node.gpus),
            limits_enforced=node.limits_enforced,
        )
        for node in await parts.engine.nodes()
    ]
    return page_of_few(views, name, limit, cursor, parts.db.version)
