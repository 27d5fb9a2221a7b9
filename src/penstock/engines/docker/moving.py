"""A node gets another address: is it the same engine, or another one, that knows nothing of what runs there?"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.nodes import Host
from penstock.engines.base import Run
from penstock.engines.docker import names
from penstock.engines.docker.hosts import Hosts


async def lacking(hosts: Hosts, host: Host, runs: Sequence[Run], installation: str) -> list[Run]:
    """Those of which the engine at the host's address has nothing, or not all that the node was last seen with."""
    api = hosts.api(host)
    try:
        await api.agree()
        found = await api.containers({"label": [names.mine(installation)]})
    finally:
        await api.close()
    there = {str(each["Id"]) for each in found}
    has = {names.run_of(each.get("Labels") or {}) for each in found}
    link = hosts.get(host.name)

    def is_there(run: Run) -> bool:
        known = {seen.id for seen in link.of(run) if not seen.gone} if link else set()
        return run in has and known <= there

    return [run for run in runs if not is_there(run)]
