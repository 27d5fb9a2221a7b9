"""All Docker hosts, connected and watched side by side, each independent of the others."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.domain.nodes import Allows, Gpu, Host, Node
from penstock.engines.base import Run
from penstock.engines.docker import names
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.api.errors import DockerUnreachable
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.api.transport import DockerAddress, InvalidAddress, Transport, dial, read_address
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.state import HostState, troubles
from penstock.errors import Conflict
from penstock.settings import Settings

PATIENCE = 5.0
"""Seconds in which a host that is well has answered."""


class DockerHosts:
    def __init__(self, settings: Settings, made: ContainerSettings, changed: Callable[[Run], None]) -> None:
        self._settings, self._made = settings, made
        self._changed = changed
        self._links: dict[str, HostLink] = {}
        self._using = asyncio.Lock()

    async def use(self, hosts: Sequence[Host]) -> None:
        """Connect to the hosts that are new or have another address, and wait a little for those that are well."""
        async with self._using:
            wanted = {host.name: host for host in hosts}
            old = [link for name, link in self._links.items() if _has_moved(link, wanted.get(name))]
            turned = [link for name, link in self._links.items() if _is_turned(link, wanted.get(name))]
            for link in old:
                del self._links[link.host.name]
            new = [self._add(host) for host in hosts]
            gone = [link for link in old if link.host.name not in wanted and link.answers]
            await asyncio.gather(*(link.networks.remove_all() for link in gone))
            await asyncio.gather(*(link.close() for link in old))
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*(link.tried.wait() for link in new if link))
        for run in {seen.run for link in (*old, *turned) for seen in link.all()}:
            self._changed(run)

    def _add(self, host: Host) -> HostLink | None:
        if known := self._links.get(host.name):
            known.host = host
            return None
        link = HostLink(host, self._api(host), self._made, self._changed)
        self._links[host.name] = link
        link.open()
        return link

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def _api(self, host: Host) -> DockerApi:
        tls = host.address.startswith("tcp:")
        return DockerApi(host.name, partial(self._dial, host.name, host.address), tls=tls)

    async def _dial(self, name: str, text: str) -> Transport:
        address = read_address(text)
        ssh = ["ssh", *(["-F", self._settings.docker_ssh_config] if self._settings.docker_ssh_config else [])]
        return await dial(address, self._tls(name, address), ssh)

    def _tls(self, name: str, address: DockerAddress) -> ssl.SSLContext | None:
        if address.scheme != "tcp":
            return None
        found = self._certificates(name)
        if found is None and _is_loopback(address.name):
            return None
        if found is None:
            said = f"there are no certificates for {name}: without them only this machine is spoken to by tcp"
            raise InvalidAddress(f"{said}; set docker_tls_dir")
        try:
            context = ssl.create_default_context(cafile=str(found / "ca.pem"))
            context.load_cert_chain(found / "cert.pem", found / "key.pem")
        except (OSError, ssl.SSLError) as error:
            raise InvalidAddress(f"the certificates in {found} cannot be used: {error}") from None
        return context

    def _certificates(self, name: str) -> Path | None:
        """Find the certificates of this node, or those of all nodes."""
        if not self._settings.docker_tls_dir:
            return None
        folder = Path(self._settings.docker_tls_dir)
        places = [folder / name, folder] if (folder / name).parent == folder else [folder]
        return next((place for place in places if (place / "ca.pem").exists()), None)

    async def lacking(self, host: Host, runs: Sequence[Run]) -> list[Run]:
        """Return those of these runs of which Docker at the host's address has nothing, or not all that was last seen
        on the node."""
        api = self._api(host)
        try:
            await api.agree()
            found = await api.containers({"label": [names.ours_filter(self._made.installation)]})
        finally:
            await api.close()
        there = {str(each["Id"]) for each in found}
        has = {names.run_of(each.get("Labels") or {}) for each in found}
        link = self.get(host.name)

        def is_there(run: Run) -> bool:
            known = {seen.id for seen in link.of(run) if not seen.gone} if link else set()
            return run in has and known <= there

        return [run for run in runs if not is_there(run)]

    # -- what is known -----------------------------------------------------------------------------------------------

    def links(self) -> Iterator[HostLink]:
        yield from list(self._links.values())

    def answering(self) -> list[HostLink]:
        return [link for link in self._links.values() if link.answers]

    def get(self, name: str) -> HostLink | None:
        return self._links.get(name)

    def link(self, name: str) -> HostLink:
        """Return a host that answers; raise where it does not."""
        link = self._links.get(name)
        if link is None:
            raise DockerUnreachable(f"There is no node {name}", host=name)
        link.require()
        return link

    def first(self) -> HostLink:
        """Return the first host that answers, for work that was given no node."""
        for link in self.answering():
            if not link.host.maintenance:
                return link
        troubles = [link.trouble for link in self.links() if link.trouble]
        raise DockerUnreachable(
            troubles[0] if troubles else "there is no node: an admin applies a Node document", host=""
        )

    def parts(self, run: Run) -> dict[int, ContainerRecord]:
        """Return the container that counts of each part: there may be others, that were taken back or removed. Where
        nothing of a run is there, it is what someone removed before this server looked."""
        links = self._links.values()
        there = [seen for link in links for seen in link.of(run)]
        found: dict[int, ContainerRecord] = {}
        for seen in there or [seen for link in links for seen in link.removed_before(run)]:
            known = found.get(seen.part)
            if known is None or (seen.began, not seen.gone) > (known.began, not known.gone):
                found[seen.part] = seen
        return found

    def running(self, run: Run, part: int, otherwise: str) -> ContainerRecord:
        """Return the container of a part that runs; raise where it does not."""
        seen = self.parts(run).get(part)
        if seen is None or not seen.runs:
            raise Conflict(f"It is not running: {otherwise}.")
        return seen

    def still_runs(self, seen: ContainerRecord) -> bool:
        known = self.parts(seen.run).get(seen.part)
        return known is not None and known.id == seen.id and known.runs

    def recall(self, run: Run) -> None:
        """Keep what someone removed of a run before this server looked beside what is started of it now, if nothing
        else of it is there."""
        if not any(link.of(run) for link in self.links()):
            for link in self.links():
                for seen in link.removed_before(run):
                    link.keep(seen)

    def runs(self) -> set[Run]:
        return {seen.run for link in self._links.values() for seen in link.all()}

    def away(self, names: Iterable[str]) -> list[str]:
        """Say of those of these nodes that do not answer why not; without names, of all."""
        return troubles(self.states(), names)

    def unseen(self, names: Iterable[str]) -> list[str]:
        """Say of those of these nodes that were never looked at why not."""
        never = [name for name in names if name not in self._links or self._links[name].last_seen is None]
        return self.away(never) if never else []

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names of nodes that are not registered any more."""
        return [name for name in names if name not in self._links]

    def drained(self, names: Iterable[str]) -> list[str]:
        """Return those of these nodes that are in maintenance."""
        return [name for name in dict.fromkeys(names) if name in self._links and self._links[name].host.maintenance]

    def states(self) -> dict[str, HostState]:
        """What a run is judged by, of each registered host."""
        return {
            name: HostState(link.trouble, link.host.maintenance, link.skew, link.docker, link.docker_since)
            for name, link in self._links.items()
        }

    def gpus_seen(self) -> list[bool]:
        """Say of each host with GPUs whether it can be seen what they do. If they are only declared it cannot."""
        found = [(_gpus(link.host, link), {gpu.uuid for gpu in link.probe.gpus}) for link in self.links()]
        return [all(gpu.uuid in known for gpu in gpus) for gpus, known in found if gpus]

    def nodes(self) -> list[Node]:
        twins = self._twins()
        return [_node(link, twins.get(name)) for name, link in sorted(self._links.items())]

    def _twins(self) -> dict[str, str]:
        """Name the other node of those that are one Docker engine twice: its GPUs would be given away twice."""
        lives: dict[str, list[str]] = {}
        for name, link in self._links.items():
            if link.answers:
                lives.setdefault(link.docker, []).append(name)
        return {
            name: next(other for other in names if other != name)
            for names in lives.values()
            if len(names) > 1
            for name in names
        }


def _has_moved(link: HostLink, host: Host | None) -> bool:
    return host is None or host.address != link.host.address


def _is_turned(link: HostLink, host: Host | None) -> bool:
    """Into maintenance, or back."""
    return host is not None and host.maintenance != link.host.maintenance


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _node(link: HostLink, twin: str | None) -> Node:
    host, info = link.host, link.info
    message = link.trouble
    if not message and twin:
        message = f"it is the same Docker engine as {twin}: delete one of the two, "
        message += "until then nothing is started on either"
    if not message and host.maintenance:
        message = "it is in maintenance: nothing new is started there"
    return Node(
        name=host.name,
        group=host.group,
        address=host.address,
        labels=host.labels,
        allows=host.allows,
        maintenance=host.maintenance,
        cpu_product=link.probe.cpu_product,
        version=str(info.get("ServerVersion") or ""),
        last_seen=link.last_seen,
        cpus_milli=int(info.get("NCPU") or 0) * 1000,
        memory_bytes=int(info.get("MemTotal") or 0),
        gpus=_gpus(host, link),
        ready=link.answers and not twin,
        message=message,
        full=link.space.full,
        limits_enforced=bool(info.get("MemoryLimit")) and bool(info.get("CpuCfsQuota")),
    )


def _gpus(host: Host, link: HostLink) -> tuple[Gpu, ...]:
    if Allows.GPUWorkload not in host.allows:
        return ()
    return host.gpus or link.probe.gpus
