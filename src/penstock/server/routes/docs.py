"""Serve Swagger UI at /docs from the package, so that it works offline, and /openapi.json."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html

from penstock.errors import NotFound

router = APIRouter(include_in_schema=False)
FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}


@router.get("/docs")
async def docs() -> Response:
    """The API, to read and to try."""
    return get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Penstock API",
        swagger_js_url="/docs/swagger-ui-bundle.js",
        swagger_css_url="/docs/swagger-ui.css",
        swagger_favicon_url="/docs/favicon-32x32.png",
    )


@router.get("/docs/{file}")
async def docs_file(file: str) -> Response:
    if file not in FILES:
        raise NotFound("There is nothing at this address.")
    content = resources.files("fastapi_swagger").joinpath("resources", file).read_bytes()
    return Response(content, media_type=FILES[file], headers={"Cache-Control": "max-age=86400"})


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(request.app.openapi())
