"""The network a group has on a host: created when it is first needed, and only once."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from penstock.engines.docker import names
from penstock.engines.docker.api.client import Api, Fields
from penstock.engines.docker.api.errors import SERVER_ERROR, ApiError, Unreachable


class Networks:
    def __init__(self, api: Api, installation: str, closed: bool, has: Callable[[str], bool]) -> None:
        self._api, self._installation, self._closed = api, installation, closed
        self._has = has
        """Has a group containers there?"""
        self._using: Counter[str] = Counter()
        """Starts under way, by group: they have no containers yet."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def use(self, group: str) -> AsyncIterator[str]:
        """The id of a group's network, which stays as long as the block lasts and there are containers of the group."""
        self._using[group] += 1
        try:
            async with self._locks[group]:
                network = await self._made(group)
            yield network
        finally:
            self._using[group] -= 1
            await self.leave(group)

    async def leave(self, group: str) -> None:
        """Remove the network of a group that has nothing there any more. What others have in it keeps it."""
        if self._is_used(group):
            return
        async with self._locks[group]:
            if not self._is_used(group):
                with suppress(ApiError):  # whoever looks there next removes it
                    for each in await self._found(group):
                        await self._api.remove_network(str(each["Id"]))

    async def clear(self) -> None:
        """Remove what a server has left that was killed."""
        for each in await self._api.networks({"label": [names.mine(self._installation), names.GROUP]}):
            await self.leave(each["Labels"][names.GROUP])

    def _is_used(self, group: str) -> bool:
        return self._using[group] > 0 or self._has(group)

    async def _made(self, group: str) -> str:
        if found := await self._one(group):
            return found
        labels = {names.INSTALLATION: self._installation, names.GROUP: group}
        name = names.network_name(self._installation, group)
        body = {"Name": name, "Driver": "bridge", "CheckDuplicate": True, "Labels": labels}
        try:
            made = await self._api.create_network(body | ({"Internal": True} if self._closed else {}))
        except Unreachable:
            raise
        except ApiError as error:  # it has no address left, which is no fault of ours
            raise ApiError(error.message, host=error.host, status=SERVER_ERROR) from error
        return await self._one(group) or made

    async def _one(self, group: str) -> str | None:
        """The oldest of this name. What a server asked for that was killed meanwhile may have come after: with two of
        a name Docker starts nothing on either, so those that nobody uses go."""
        found = sorted(await self._found(group), key=lambda each: str(each.get("Created")))
        for other in found[1:]:
            with suppress(ApiError):
                await self._api.remove_network(str(other["Id"]))
        return str(found[0]["Id"]) if found else None

    async def _found(self, group: str) -> list[Fields]:
        label = [names.mine(self._installation), f"{names.GROUP}={group}"]
        name = names.network_name(self._installation, group)
        return [each for each in await self._api.networks({"label": label}) if each.get("Name") == name]
