"""Taking back a container whose start may have been asked for, by a server that is gone or that never got the answer.

That request may still be under way. Docker carries out two of them one after the other, and a short program would run
twice: so a container is asked to start once in its life. One that is found created and not begun is removed, which
Docker refuses while it runs and after which it starts no more; what Docker remembers then says whether it ran at last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from penstock.engines.docker import names
from penstock.engines.docker.api import Api
from penstock.engines.docker.failures import ApiError, Clash, Unreachable
from penstock.engines.docker.link import Link
from penstock.engines.docker.remembering import Past, memory_of
from penstock.engines.docker.seen import Seen

PATIENCE = 10.0
"""Seconds in which an engine that remembers has told."""


class InDoubt(ApiError):
    """It may have run: nobody can tell any more."""


async def forgotten(link: Link, prepared: Sequence[Seen]) -> list[Seen]:
    """Those of which Docker does not remember that it made them, or what they were made instead of: it was killed or
    restarted since, and what it calls created may have run."""
    if not prepared:
        return []
    memory = await memory_of(link.api)
    return [seen for seen in prepared if not all(memory.made(each) for each in (*instead_of(seen), seen.id))]


async def withdrawn(link: Link, seen: Seen) -> Seen | None:
    """None: it is gone and never ran, and neither did those it was made instead of. Otherwise as it is, or was."""
    try:
        await link.remove(seen, force=False)
    except Clash:
        return await link.look(seen.id)
    past = await _remembered(link.api, [*instead_of(seen), seen.id])
    for each in past.values():
        if each.started_at:
            return _as_it_was(link, seen, each)
    if not all(each.made for each in past.values()):
        raise doubt(link.api.host)
    return None


def instead_of(seen: Seen) -> list[str]:
    """Ids of the containers that were taken back before this one was made."""
    return [each for each in seen.labels.get(names.INSTEAD_OF, "").split(",") if each]


def _as_it_was(link: Link, seen: Seen, past: Past) -> Seen:
    if past.exit_code is None:
        raise doubt(link.api.host)
    found = replace(seen, status="exited", started_at=past.started_at, ended_at=past.ended_at, exit_code=past.exit_code)
    found = replace(found, heard=True)
    link.keep(found)
    return found


async def _remembered(api: Api, ids: Sequence[str]) -> dict[str, Past]:
    """Once it is known to the end of each."""
    found = {each: Past() for each in ids}
    filters = {"type": ["container"], "event": ["create", "start", "die", "destroy"], "container": ids}
    try:
        async with asyncio.timeout(PATIENCE), api.events(filters, since="0") as events:
            async for event in events:
                found[event["Actor"]["ID"]].add(event)
                if all(each.removed for each in found.values()):
                    return found
    except TimeoutError:
        raise doubt(api.host) from None
    raise Unreachable(f"Docker on {api.host} has closed the connection", host=api.host)


def doubt(host: str) -> InDoubt:
    said = f"Docker on {host} was asked to start it, the answer was lost, and Docker does not remember whether it ran"
    return InDoubt(said, host=host)
