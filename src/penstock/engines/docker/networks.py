"""The network that a group has on a host: made when it is first needed, and one only."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.engines.docker import names
from penstock.engines.docker.container_settings import ContainerSettings
from penstock.engines.docker.failures import ApiError
from penstock.engines.docker.link import Link


class Networks:
    def __init__(self, made: ContainerSettings) -> None:
        self._made = made
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def of(self, link: Link, group: str) -> str:
        name = names.network_name(self._made.installation, group)
        async with self._locks.setdefault((link.host.name, group), asyncio.Lock()):
            if found := await self._one(link, name, group):
                return found
            labels = {names.INSTALLATION: self._made.installation, names.GROUP: group}
            body = {"Name": name, "Driver": "bridge", "CheckDuplicate": True, "Labels": labels}
            made = await link.api.create_network(body | ({"Internal": True} if self._made.closed else {}))
            return await self._one(link, name, group) or made

    async def _one(self, link: Link, name: str, group: str) -> str | None:
        """The oldest of this name. What a server asked for that was killed meanwhile may have come after: with two of
        a name Docker starts nothing on either, so those that nobody uses go."""
        label = [names.mine(self._made.installation), f"{names.GROUP}={group}"]
        found = [each for each in await link.api.networks({"label": label}) if each.get("Name") == name]
        found.sort(key=lambda each: str(each.get("Created")))
        for other in found[1:]:
            with suppress(ApiError):
                await link.api.remove_network(str(other["Id"]))
        return str(found[0]["Id"]) if found else None
