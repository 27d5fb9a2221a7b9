"""Routes about the server itself: health, metrics, version, checks, the caller, and the API's documentation."""

from __future__ import annotations

import logging
import os
import signal
from importlib import resources

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import JSONResponse

from penstock import __version__
from penstock.config import load as load_settings
from penstock.domain.policy import Kind, Verb
from penstock.engines.shared.disk import disk_of
from penstock.errors import Invalid, NotFound, SettingsError, StorageFull, Unavailable
from penstock.server.identity import Authorized, require_membership
from penstock.server.routes.messages import answer
from penstock.server.secret_files import with_secrets
from penstock.wire.server import CheckList, Health, ServerView, Whoami

log = logging.getLogger(__name__)
router = APIRouter(tags=["server"])
RESTART = signal.SIGUSR1
"""The signal that makes the process restart."""
GAUGES = {
    "nodes": ("penstock_nodes", "Nodes"),
    "ready": ("penstock_nodes_ready", "Nodes that take work"),
    "cpus": ("penstock_cpus", "CPUs offered to workloads"),
    "cpus_free": ("penstock_cpus_free", "CPUs no workload has asked for"),
    "memory_bytes": ("penstock_memory_bytes", "Memory offered to workloads"),
    "memory_free_bytes": ("penstock_memory_free_bytes", "Memory no workload has asked for"),
    "gpus": ("penstock_gpus", "GPUs offered to workloads"),
    "gpus_held": ("penstock_gpus_held", "GPUs somebody has"),
}


@router.get("/", response_model=Health)
async def root() -> Response:
    """Names the service and its version."""
    return answer(Health(service="k8s-cli-api", version=__version__))


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Answers as soon as the server can work."""
    return answer(Health(service="penstock", version=__version__))


@router.get("/metrics", response_class=Response)
async def metrics(call: Authorized) -> Response:
    """Prometheus text."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    workloads = Gauge("penstock_workloads", "Workloads by status", ["status"], registry=registry)
    for status, number in sorted((await call.parts.workloads.counts()).items()):
        workloads.labels(status).set(number)
    totals = await call.parts.nodes.totals()
    for field, (name, meaning) in GAUGES.items():
        Gauge(name, meaning, registry=registry).set(getattr(totals, field))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/whoami", response_model=Whoami)
async def whoami(call: Authorized) -> Response:
    """Who the caller is to the server, and how it knows."""
    return answer(
        Whoami(
            user=call.caller.user,
            group=call.caller.group,
            admin=call.caller.admin,
            proof=call.caller.proof,
            uid=call.caller.uid,
        )
    )


@router.get("/v1/server", response_model=ServerView)
async def server(call: Authorized) -> Response:
    """What this server is, where it listens, where its data is. For members of any group."""
    require_membership(call.caller)
    settings = call.parts.settings
    return answer(
        ServerView(
            version=__version__,
            pid=os.getpid(),
            mode=settings.mode,
            engine=settings.engine,
            socket=str(settings.socket_path),
            address=call.parts.port.address,
            problem=call.parts.port.problem,
            auth=settings.auth,
            data_dir=str(settings.data_dir),
            started_at=call.parts.started_at,
        )
    )


@router.post("/v1/server/stop", status_code=202, response_model=Health)
async def stop_server(call: Authorized) -> Response:
    """Stops the server. Running jobs go on."""
    try:
        await call.parts.audit.done(call.caller, Verb.stop, Kind.Server)
    except (StorageFull, Unavailable) as error:
        log.warning("stopped by %s, which is not in the audit: %s", call.caller.user, error)
    os.kill(os.getpid(), signal.SIGTERM)
    return answer(Health(status="stopping", service="penstock", version=__version__), 202)


@router.post("/v1/server/restart", status_code=202, response_model=Health)
async def restart_server(call: Authorized) -> Response:
    """Restarts the server, as the version that is installed now and with the settings there are now. Its
    sockets stay open, so callers wait meanwhile. Running jobs go on."""
    try:
        with_secrets(load_settings())
    except SettingsError as error:
        raise Invalid(
            "The settings are invalid now; the server keeps running as it is.", problems=error.problems
        ) from None
    await call.parts.audit.done(call.caller, Verb.stop, Kind.Server)
    os.kill(os.getpid(), RESTART)
    return answer(Health(status="stopping", service="penstock", version=__version__), 202)


@router.get("/v1/doctor", response_model=CheckList)
async def doctor(call: Authorized) -> Response:
    """What is installed, what is missing, what works. For members of any group."""
    require_membership(call.caller)
    engine, adoption = await call.parts.engine.checks(), await call.parts.adoption.checks(call.caller)
    checks = [call.parts.port.check(), disk_of(call.parts.settings).check(), *engine, *adoption]
    if any(check.node for check in checks):
        seen = {None, *(node.name for node in await call.parts.nodes.seen_by(call.caller))}
        checks = [check for check in checks if check.node in seen]
    return answer(CheckList(checks=tuple(checks)))


FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """Swagger UI, from the package, so that it works offline."""
    return get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Penstock API",
        swagger_js_url="/docs/swagger-ui-bundle.js",
        swagger_css_url="/docs/swagger-ui.css",
        swagger_favicon_url="/docs/favicon-32x32.png",
    )


@router.get("/docs/{file}", include_in_schema=False)
async def docs_file(file: str) -> Response:
    if file not in FILES:
        raise NotFound("There is nothing at this address.")
    content = resources.files("fastapi_swagger").joinpath("resources", file).read_bytes()
    return Response(content, media_type=FILES[file], headers={"Cache-Control": "max-age=86400"})


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    return JSONResponse(request.app.openapi())
