"""Small containers that do one thing for us on a host and are removed again.

One of them measures what the host's disk has free, since Docker does not say: when the host is reached, when a job has
failed there, when a start has had no room, when somebody asks what volumes hold, and as long as there is too little.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from penstock.background import Tasks
from penstock.domain.quantities import show_bytes
from penstock.engines.docker import names
from penstock.engines.docker.api.client import DockerApi, Fields
from penstock.engines.docker.api.errors import DockerError, is_disk_full
from penstock.engines.docker.api.http import FrameReader
from penstock.engines.docker.images import ensure_image
from penstock.engines.docker.names import Label
from penstock.engines.docker.settings import ContainerSettings

log = logging.getLogger(__name__)
KIBIBYTE = 1024
SECONDS = 120.0
"""Time in which a helper does its work."""
REMOVAL_SECONDS = 20.0
"""Time in which a host that is well removes a helper; elsewhere it is removed when the host is looked at again."""


class Helpers:
    """Runs helpers on one host, from the image that the settings name."""

    def __init__(self, api: DockerApi, made: ContainerSettings) -> None:
        self._api, self._image, self._installation = api, made.helper_image, made.installation
        self.host = api.host
        self.working: set[str] = set()
        """The names of helpers that work now: any other on the host is left over."""

    async def run(
        self,
        words: Sequence[str],
        *,
        volumes: Mapping[str, str] | None = None,
        config: Fields | None = None,
        read_only: bool = True,
    ) -> str:
        """Return what a program printed; raise with what it complained about if it failed."""
        async with self.started(words, volumes=volumes, config=config, read_only=read_only) as made:
            code = await self._api.wait(made, SECONDS)
            out = await self._output(made)
        if code:
            said = (out[2] or out[1]).decode(errors="replace").strip()
            raise DockerError(said or f"{words[0]} ended with code {code}", host=self._api.host)
        return out[1].decode(errors="replace")

    @asynccontextmanager
    async def hold(self, words: Sequence[str], volumes: Mapping[str, str]) -> AsyncIterator[None]:
        """Keep volumes mounted as long as the block lasts, which begins when the program prints something."""
        async with self.started(words, volumes=volumes) as made:
            async with asyncio.timeout(SECONDS):
                out = await self._output(made, at_once=True)
            if not out[1]:
                said = out[2].decode(errors="replace").strip()
                raise DockerError(said or f"{words[0]} has ended", host=self._api.host)
            yield

    @asynccontextmanager
    async def started(
        self,
        words: Sequence[str],
        *,
        volumes: Mapping[str, str] | None = None,
        config: Fields | None = None,
        read_only: bool = True,
    ) -> AsyncIterator[str]:
        """Start a container and remove it when the block ends. `volumes` are name → path."""
        await ensure_image(self._api, self._image)
        mounts = [
            {"Type": "volume", "Source": name, "Target": path, "ReadOnly": read_only, "VolumeOptions": {"NoCopy": True}}
            for name, path in (volumes or {}).items()
        ]
        body: Fields = {
            "Image": self._image,
            "Entrypoint": list(words[:1]),
            "Cmd": list(words[1:]),
            "User": "",
            "Labels": names.with_all_labels(self._installation, {Label.HELPER: "true"}),
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
        name = f"{self._installation}-helper-{secrets.token_hex(6)}"
        self.working.add(name)
        making = asyncio.ensure_future(self._api.create(name, body))
        try:
            made = await asyncio.shield(making)
            await self._api.start(made)
            yield made
        finally:
            try:
                async with asyncio.timeout(REMOVAL_SECONDS):
                    if not making.done() or not making.exception():  # who gives up while it is made leaves nothing
                        await self._api.remove(await asyncio.shield(making))
            except (DockerError, TimeoutError) as error:
                log.info("%s: the helper %s is left over: %s", self.host, name, error)
            finally:
                self.working.discard(name)

    async def _output(self, made: str, *, at_once: bool = False) -> dict[int, bytes]:
        """All of it, or `at_once` what there is when the first of it has come."""
        out = {1: b"", 2: b""}
        frames = FrameReader()
        async with self._api.logs(made, timestamps="0", follow="1" if at_once else "0") as pieces:
            async for piece in pieces:
                for number, data in frames.feed(piece):
                    out[2 if number == 2 else 1] += data
                if at_once and out[1]:
                    break
        return out


# -- free space --------------------------------------------------------------------------------------------------------

MARK, SHARE = 1 << 30, 20
"""Nothing starts where less than this many bytes are free, or less than a twentieth of a smaller disk."""
LOOK_SECONDS = 10.0
"""The pause between two looks at a disk that is full."""
FIX = "penstock volumes df; penstock jobs delete; penstock volumes delete; on the host: docker system prune"


class DiskSpace:
    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self.free: int | None = None
        """Bytes, as last seen; None: not seen yet."""
        self._total = 0
        self._doubted = False
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    @property
    def full(self) -> str | None:
        """Why nothing new starts on the host, as the rest of a sentence that begins with its name."""
        mark = min(MARK, self._total // SHARE)
        if self.free is None or self.free > mark:
            return None
        of = f" of {show_bytes(self._total)}" if self._total else ""
        return (
            f"has a full disk ({show_bytes(self.free)}{of} free): nothing new starts there until room is made ({FIX})"
        )

    def doubt(self) -> None:
        """Look soon whether the disk is full, and as long as it is."""
        self._doubted = True
        if "look" not in self._tasks:
            self._tasks.start(self._look_until_free(), "look")

    async def _look_until_free(self) -> None:
        while self._doubted or self.full:
            self._doubted = False
            try:
                await self.look()
            except DockerError as error:
                log.info("the free disk space of %s cannot be measured: %s", self._helpers.host, error.message)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        try:
            said = await self._helpers.run(["df", "-Pk", "/"])
        except DockerError as error:
            if not is_disk_full(error):
                raise
            self.free = 0
            return
        _, total, _, free, *_ = said.splitlines()[-1].split()
        self._total, self.free = int(total) * KIBIBYTE, int(free) * KIBIBYTE
