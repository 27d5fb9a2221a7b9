"""Routes about the server itself: health, metrics, version, checks and the caller."""

from __future__ import annotations

import logging
import os
import signal

from fastapi import APIRouter, Response

from penstock import __version__
from penstock.config import load as load_settings
from penstock.domain.policy import Kind, Verb
from penstock.engines.shared.disk import disk_of
from penstock.errors import Invalid, SettingsError, StorageFull, Unavailable
from penstock.server.identity import Asked, require_membership
from penstock.server.routes.paging import Cursor, Limit, answer, one_page, page_of
from penstock.server.secret_files import with_secrets
from penstock.wire.nodes import GpuPage, NodePage
from penstock.wire.server import CheckList, Health, ServerView, Whoami

log = logging.getLogger(__name__)
router = APIRouter(tags=["server"])
RESTART = signal.SIGUSR1
"""Tells the process to begin anew."""


@router.get("/", response_model=Health)
async def root() -> Response:
    """Says what this is."""
    return answer(Health(service="k8s-cli-api", version=__version__))


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Answers as soon as the server can work."""
    return answer(Health(service="penstock", version=__version__))


@router.get("/metrics", response_class=Response)
async def metrics(asked: Asked) -> Response:
    """Prometheus text."""
    from penstock.server.metrics import exposition

    text, media_type = exposition(await asked.parts.workloads.counts(), await asked.parts.nodes.totals())
    return Response(text, media_type=media_type)


@router.get("/v1/whoami", response_model=Whoami)
async def whoami(asked: Asked) -> Response:
    """Who the server takes the caller for, and how it knows."""
    return answer(
        Whoami(
            user=asked.caller.user,
            group=asked.caller.group,
            admin=asked.caller.admin,
            proof=asked.caller.proof,
            uid=asked.caller.uid,
        )
    )


@router.get("/v1/server", response_model=ServerView)
async def server(asked: Asked) -> Response:
    """What this server is, where it listens, where its data is. For members of any group."""
    require_membership(asked.caller)
    settings = asked.parts.settings
    return answer(
        ServerView(
            version=__version__,
            pid=os.getpid(),
            mode=settings.mode,
            engine=settings.engine,
            socket=str(settings.socket_path),
            address=asked.parts.port.address,
            problem=asked.parts.port.problem,
            auth=settings.auth,
            data_dir=str(settings.data_dir),
            started_at=asked.parts.started_at,
        )
    )


@router.post("/v1/server/stop", status_code=202, response_model=Health)
async def stop_server(asked: Asked) -> Response:
    """Stops the server. Jobs that run go on."""
    try:
        await asked.parts.audit.done(asked.caller, Verb.stop, Kind.Server)
    except (StorageFull, Unavailable) as error:
        log.warning("stopped by %s, which is not in the audit: %s", asked.caller.user, error)
    os.kill(os.getpid(), signal.SIGTERM)
    return answer(Health(status="stopping", service="penstock", version=__version__), 202)


@router.post("/v1/server/restart", status_code=202, response_model=Health)
async def restart_server(asked: Asked) -> Response:
    """Makes the server begin anew, as the version that is installed by now, with the settings there are by now. Its
    sockets stay open: callers wait meanwhile. Jobs that run go on."""
    try:
        with_secrets(load_settings())
    except SettingsError as error:
        raise Invalid("The settings are wrong by now; the server goes on as it is.", problems=error.problems) from None
    await asked.parts.audit.done(asked.caller, Verb.stop, Kind.Server)
    os.kill(os.getpid(), RESTART)
    return answer(Health(status="stopping", service="penstock", version=__version__), 202)


@router.get("/v1/doctor", response_model=CheckList)
async def doctor(asked: Asked) -> Response:
    """What is installed, what is missing, what works. For members of any group."""
    require_membership(asked.caller)
    engine, adoption = await asked.parts.engine.checks(), await asked.parts.adoption.checks(asked.caller)
    checks = [asked.parts.port.check(), disk_of(asked.parts.settings).check(), *engine, *adoption]
    if any(check.node for check in checks):
        seen = {None, *(node.name for node in await asked.parts.nodes.seen_by(asked.caller))}
        checks = [check for check in checks if check.node in seen]
    return answer(CheckList(checks=tuple(checks)))


@router.get("/v1/nodes", response_model=NodePage)
async def nodes(asked: Asked, name: str | None = None, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """What there is to run on, what of it is free, and who has the GPUs."""
    shown, after = one_page(await asked.parts.nodes.seen_by(asked.caller), name, limit, cursor)
    return page_of(await asked.parts.nodes.views(asked.caller, shown), after, asked.parts.db.version)


@router.get("/v1/gpus", response_model=GpuPage)
async def gpus(asked: Asked, name: str | None = None, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """The GPUs by node and product: how many there are, how many are free, and who has the rest. `name` is
    `node/product`."""
    shown, after = one_page(await asked.parts.nodes.products(asked.caller), name, limit, cursor)
    return page_of(await asked.parts.nodes.gpus(asked.caller, shown), after, asked.parts.db.version)
