"""The network a group has on a host: created when it is first needed, and only once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from penstock.engines.docker import names
from penstock.engines.docker.api.client import DockerApi, Fields
from penstock.engines.docker.api.errors import SERVER_ERROR, DockerError, DockerUnreachable


class GroupNetworks:
    def __init__(self, api: DockerApi, installation: str, closed: bool) -> None:
        self._api, self._installation, self._closed = api, installation, closed
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, group: str) -> str:
        """Return the id of a group's network. It stays until the node is deleted: see docs/decisions/docker.md."""
        async with self._locks[group]:
            return await self._made(group)

    async def _made(self, group: str) -> str:
        if found := await self._one(group):
            return found
        labels = {names.INSTALLATION: self._installation, names.GROUP: group}
        name = names.network_name(self._installation, group)
        body = {"Name": name, "Driver": "bridge", "CheckDuplicate": True, "Labels": labels}
        try:
            made = await self._api.create_network(body | ({"Internal": True} if self._closed else {}))
        except DockerUnreachable:
            raise
        except DockerError as error:  # it has no address left, which is no fault of ours
            raise DockerError(error.message, host=error.host, status=SERVER_ERROR) from error
        return await self._one(group) or made

    async def _one(self, group: str) -> str | None:
        """The oldest of this name. What a server asked for that was killed meanwhile may have come after: with two of
        a name Docker starts nothing on either, so those that nobody uses go."""
        found = sorted(await self._found(group), key=lambda each: str(each.get("Created")))
        for other in found[1:]:
            with suppress(DockerError):
                await self._api.remove_network(str(other["Id"]))
        return str(found[0]["Id"]) if found else None

    async def _found(self, group: str) -> list[Fields]:
        label = [names.mine(self._installation), f"{names.GROUP}={group}"]
        name = names.network_name(self._installation, group)
        return [each for each in await self._api.networks({"label": label}) if each.get("Name") == name]
