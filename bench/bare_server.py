"""The alternative to our server: FastAPI and uvicorn as we use them, with one route that answers a fixed body.

Started as `python -m bench.bare_server SOCKET BODY_FILE`; writes a line to standard output once it listens.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response


def app(body: bytes) -> FastAPI:
    bare = FastAPI()

    @bare.get("/")
    async def fixed() -> Response:
        return Response(body, media_type="application/json")

    return bare


async def serve(socket: str, body: bytes) -> None:
    config = uvicorn.Config(
        app(body), uds=socket, log_level="warning", access_log=False, loop="uvloop", http="httptools"
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
    print("ready", flush=True)
    await running


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1], Path(sys.argv[2]).read_bytes()))
