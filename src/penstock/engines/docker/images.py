"""Use an image that is on the host, pull one that is not, and say plainly why a pull failed."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import Callable
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
    r"|EOF|connection reset|temporar|no such host|TLS handshake",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/@-]{0,253}[A-Za-z0-9])?\Z")
Said = Callable[[str], None]


ANSWER_SECONDS = 5.0
"""Time in which a registry that is well has answered; Docker itself waits three times as long, or more."""
SILENT_SECONDS = 60.0
"""Time in which a registry that has answered has sent something more."""


class PullFailed(DockerError):
    def __init__(self, image: str, answer: str, host: str) -> None:
        super().__init__(describe_pull_failure(image, "", answer), host=host)
        self.image = image
        self.passing = bool(_FOR_A_WHILE.search(answer)) and "no basic auth" not in answer
        """It may be better in a moment."""


class RegistrySilent(PullFailed):
    """The registry does not answer, and the host goes on asking it."""

    def __init__(self, image: str, host: str) -> None:
        super().__init__(image, f"the registry {registry_name(image)} does not answer {host}", host)
        self.passing = True


async def ensure_image(api: DockerApi, image: str, login: str | None = None, said: Said | None = None) -> None:
    """Pull the image unless it is on the host. One with labels of ours is refused."""
    if found := await api.image(image):
        refuse_marked(found, image)
        return
    try:
        await _pull(api, image, login, said or log.debug)
    except PullFailed:
        if await api.image(image) is None:  # someone else may have brought it meanwhile
            raise
    except DockerUnreachable:
        raise
    except DockerError as error:
        raise PullFailed(image, error.message, api.host) from error
    refuse_marked(await api.image(image) or {}, image)


def refuse_marked(found: Fields, image: str) -> None:
    if is_marked(found):
        raise PenstockError(
            f"The image {shorten(image)} has labels that only Penstock writes, so it is not run.",
            hint="build it without labels that begin with penstock.dev/, and without exitCode",
        )


async def _pull(api: DockerApi, image: str, login: str | None, said: Said) -> None:
    layers: dict[str, bool] = {}
    async with aclosing(api.pull(image, login)) as progress:
        async for event in progress:
            if "error" in event:
                raise PullFailed(image, str(event["error"]), api.host)
            if not layers:
                said(f"{api.host} pulls {image}")
            status, layer = str(event.get("status", "")), str(event.get("id", ""))
            if status in ("Pulling fs layer", "Already exists", "Pull complete"):
                layers[layer] = status != "Pulling fs layer"
                said(f"{api.host} pulls {image}: {sum(layers.values())} of {len(layers)} layers")


class ImagePull:
    """An image on its way to a host. Whoever waits for it hears how far it is, and may leave: the host goes on as long
    as somebody waits, or the registry is silent."""

    def __init__(self, api: DockerApi, image: str, login: str | None) -> None:
        self._image, self._host = image, api.host
        self._waiting: list[Said] = []
        self._answered = False
        self._heard = asyncio.get_running_loop().time()
        self.task = asyncio.create_task(ensure_image(api, image, login, self._hear))

    def _hear(self, text: str) -> None:
        self._answered, self._heard = True, asyncio.get_running_loop().time()
        for said in self._waiting:
            said(text)

    async def wait(self, said: Said) -> None:
        """Return when the image is there. Raise RegistrySilent where the registry keeps everybody waiting."""
        self._waiting.append(said)
        try:
            while (left := self._left()) > 0 and not self.task.done():
                await asyncio.wait([self.task], timeout=left)
        except asyncio.CancelledError:
            if len(self._waiting) == 1:
                self.task.cancel()
            raise
        finally:
            self._waiting.remove(said)
        if not self.task.done() or self.task.cancelled():
            raise RegistrySilent(self._image, self._host)
        self.task.result()

    def _left(self) -> float:
        patience = SILENT_SECONDS if self._answered else ANSWER_SECONDS
        return self._heard + patience - asyncio.get_running_loop().time()


class ImagePulls:
    """Pulls an image once, however many want it on a host at the same time."""

    def __init__(self, config: str) -> None:
        self._config = Path(config) if config else None
        self._pulls: dict[tuple[str, str], ImagePull] = {}

    async def close(self) -> None:
        tasks = [pull.task for pull in self._pulls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def have(self, api: DockerApi, image: str, said: Said) -> None:
        key = (api.host, image)
        if key not in self._pulls:
            pull = self._pulls[key] = ImagePull(api, image, self._login(image))
            pull.task.add_done_callback(lambda task: self._over(key, task))
        await self._pulls[key].wait(said)

    def _over(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        del self._pulls[key]
        if not task.cancelled():
            task.exception()  # nobody may have waited for it

    def _login(self, image: str) -> str | None:
        """Return the login for an image's registry as Docker wants it, from a file as `docker login` writes it. It is
        read each time, so that a new one counts."""
        if self._config is None:
            return None
        try:
            known = json.loads(self._config.read_text())["auths"]
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
