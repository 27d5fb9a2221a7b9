"""Use an image that is on the host, pull one that is not, and say plainly why a pull failed."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

from penstock.domain.names import shorten
from penstock.engines.docker import names
from penstock.engines.docker.api.client import DockerApi, Fields
from penstock.engines.docker.api.errors import DockerError, DockerUnreachable
from penstock.engines.shared.images import describe_pull_failure
from penstock.errors import PenstockError

log = logging.getLogger(__name__)
HUB = "https://index.docker.io/v1/"
_FOR_A_WHILE = re.compile(
    r"connection refused|i/o timeout|no route to host|network is unreachable|timeout|toomanyrequests|429|50[0-4] "
    r"|EOF|connection reset|temporar|no such host|TLS handshake|does not answer",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/@-]{0,253}[A-Za-z0-9])?\Z")
Said = Callable[[str], None]

ANSWER_SECONDS, SILENT_SECONDS = 5.0, 60.0
"""Seconds in which a registry that is well has answered, and then sent something more; Docker itself waits longer."""


class PullFailed(DockerError):
    def __init__(self, image: str, answer: str, host: str) -> None:
        super().__init__(describe_pull_failure(image, "", answer), host=host)
        self.image = image
        self.passing = bool(_FOR_A_WHILE.search(answer)) and "no basic auth" not in answer
        """It may be better in a moment."""


async def ensure_image(api: DockerApi, image: str) -> None:
    """Pull the image of helpers unless it is on the host. One with labels of ours is refused."""
    if found := await api.image(image):
        refuse_marked(found, image)
    else:
        await pull(api, image, None, log.debug)


async def pull(api: DockerApi, image: str, login: str | None, said: Said) -> None:
    """Pull an image. Docker itself fetches it once, however many ask for it at the same time."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS) as silence, aclosing(api.pull(image, login)) as progress:
            await _follow(progress, silence, f"{api.host} pulls {image}", said)
    except TimeoutError:
        raise PullFailed(image, f"the registry {registry_name(image)} does not answer {api.host}", api.host) from None
    except DockerUnreachable:
        raise
    except DockerError as error:
        raise PullFailed(image, error.message, api.host) from error
    refuse_marked(await api.image(image) or {}, image)


async def _follow(progress: AsyncIterator[Fields], silence: asyncio.Timeout, doing: str, said: Said) -> None:
    layers: dict[str, bool] = {}
    async for event in progress:
        silence.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS)
        if "error" in event:
            raise DockerError(str(event["error"]), host="")
        if not layers:
            said(doing)
        status, layer = str(event.get("status", "")), str(event.get("id", ""))
        if status in ("Pulling fs layer", "Already exists", "Pull complete"):
            layers[layer] = status != "Pulling fs layer"
            said(f"{doing}: {sum(layers.values())} of {len(layers)} layers")


def refuse_marked(found: Fields, image: str) -> None:
    if is_marked(found):
        raise PenstockError(
            f"The image {shorten(image)} has labels that only Penstock writes, so it is not run.",
            hint="build it without labels that begin with penstock.dev/, and without exitCode",
        )


def read_login(config: str, image: str) -> str | None:
    """Return the login for an image's registry as Docker wants it, from a file as `docker login` writes it. It is read
    each time, so that a new one counts."""
    try:
        known = json.loads(Path(config).read_text())["auths"]
        registry = registry_of(image)
        entry = known.get(registry) or known.get(f"https://{registry}") or {}
        user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    login = {"username": user, "password": password, "serveraddress": registry}
    return base64.urlsafe_b64encode(json.dumps(login).encode()).decode()


def is_marked(found: Fields) -> bool:
    """Has the image labels that are ours to write? Docker gives them to every container that is made of it."""
    return any(map(names.is_ours, (found.get("Config") or {}).get("Labels") or {}))


def is_name(image: str) -> bool:
    """Can this be the name of an image? Anything else must not become part of a path."""
    return bool(_NAME.match(image)) and ".." not in image and "//" not in image


def registry_of(image: str) -> str:
    """Return the registry in a name like `registry.example.org:5000/team/thing:1`; without one it is Docker Hub."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else HUB


def registry_name(image: str) -> str:
    """Return the name that people call the registry of an image by."""
    registry = registry_of(image)
    return "Docker Hub" if registry == HUB else registry
