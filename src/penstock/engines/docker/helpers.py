"""Small containers that do one thing for us on a host and are removed again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.engines.docker import names
from penstock.engines.docker.api.client import DockerApi, Fields
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.api.http import FrameReader
from penstock.engines.docker.images import ensure_image

SECONDS, CLOSING = 120.0, 3.0
"""In which it does its work, and in which it is removed when nobody wants it any more."""
KILLED = (137, 143)
"""By someone else: what it had said until then does not say why."""


@asynccontextmanager
async def helper(
    api: DockerApi,
    image: str,
    installation: str,
    words: Sequence[str],
    *,
    volumes: Mapping[str, str] | None = None,
    user: str = "",
    config: Fields | None = None,
    read_only: bool = True,
) -> AsyncIterator[str]:
    """Start a container and remove it when the block ends. `volumes` are name → path; without a `user` it is the
    image's own."""
    await ensure_image(api, image)
    mounts = [
        {"Type": "volume", "Source": name, "Target": path, "ReadOnly": read_only, "VolumeOptions": {"NoCopy": True}}
        for name, path in (volumes or {}).items()
    ]
    body: Fields = {
        "Image": image,
        "Entrypoint": list(words[:1]),
        "Cmd": list(words[1:]),
        "User": user,
        "Labels": names.labelled(installation, {names.HELPER: "true"}),
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "CapAdd": ["DAC_OVERRIDE", "CHOWN", "FOWNER"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": 64,
            "Mounts": mounts,
            "LogConfig": {"Type": "local"},
        }
        | (config or {}),
    }
    making = asyncio.ensure_future(api.create(f"{installation}-helper-{secrets.token_hex(6)}", body))
    try:
        made = await asyncio.shield(making)
        await api.start(made)
        yield made
    finally:
        if not making.done() or not making.exception():  # whoever gives up while it is being made leaves nothing
            await api.remove(await making)


async def run_helper(
    api: DockerApi, image: str, installation: str, words: Sequence[str], *, seconds: float = SECONDS, **more: Any
) -> str:
    """Return what it printed; raise with what it complained if it failed. What more it takes, see `helper`."""
    async with helper(api, image, installation, words, **more) as made:
        code = await api.wait(made, seconds)
        out = await _output(api, made)
    if code:
        said = (out[2] or out[1]).decode(errors="replace").strip() if code not in KILLED else ""
        raise DockerError(said or f"{words[0]} ended with code {code}", host=api.host)
    return out[1].decode(errors="replace")


@asynccontextmanager
async def hold_volumes(
    api: DockerApi, image: str, installation: str, words: Sequence[str], volumes: Mapping[str, str]
) -> AsyncIterator[None]:
    """Keep volumes mounted as long as the block lasts, which begins when the program prints something."""
    async with helper(api, image, installation, words, volumes=volumes) as made:
        async with asyncio.timeout(SECONDS):
            out = await _output(api, made, at_once=True)
        if not out[1]:
            raise DockerError(out[2].decode(errors="replace").strip() or f"{words[0]} has ended", host=api.host)
        yield


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Tasks that have containers help them, told to end: each removes its own. Where a host does not answer, what is
    left there is removed by whoever looks there next."""
    for task in tasks:
        task.cancel()
    if tasks:
        _, slow = await asyncio.wait(tasks, timeout=CLOSING)
        for task in slow:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _output(api: DockerApi, made: str, *, at_once: bool = False) -> dict[int, bytes]:
    """All of it, or `at_once` what there is when the first of it has come."""
    out = {1: b"", 2: b""}
    frames = FrameReader()
    async with api.logs(made, timestamps="0", follow="1" if at_once else "0") as pieces:
        async for piece in pieces:
            for number, data in frames.feed(piece):
                out[2 if number == 2 else 1] += data
            if at_once and out[1]:
                break
    return out
