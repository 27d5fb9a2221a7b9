"""The steps of a start, each of which can be repeated: image, network, volumes, containers, files, go.

A container has a name that follows from its run, so the engine itself refuses a second one; and each is asked to start
once in its life, by whoever made it. One that is found prepared is taken back and made anew. Whatever is cut off in
between, taking all steps again gives one container that ran once.

The request to start that a killed server made may still be under way. Docker carries out two of them one after the
other, and a short program would run twice: so a container is asked to start once in its life. One that is found created
and not begun is removed, which Docker refuses while it runs and after which it starts no more; what Docker remembers
then says whether it ran at last.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from penstock.domain.names import shorten
from penstock.domain.paths import WORKDIR
from penstock.domain.states import Reason, State
from penstock.engines.base import Launch, Run
from penstock.engines.docker import names
from penstock.engines.docker.api.errors import DockerConflict, DockerError, DockerNotConnected, DockerUnreachable
from penstock.engines.docker.api.http import HttpBody
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.cpus import DedicatedCpus, shared_cpus
from penstock.engines.docker.events import ContainerPast, read_memory
from penstock.engines.docker.gpus import has_nvidia
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.images import is_name, pull, read_login, refuse_marked, registry_name
from penstock.engines.docker.names import Label
from penstock.engines.docker.nfs import is_about_mounts, mount_words
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.spec import NOTE, ContainerPlace, container, disk_scratch, is_minded
from penstock.engines.docker.volumes import DockerClaims
from penstock.errors import Conflict, PenstockError

PIECE = 1 << 20
AT_ONCE = 8
Say = Callable[[State, Reason, str], None]
T = TypeVar("T")


class StartFailed(DockerError):
    """A start is given up, and ends in this state; UNKNOWN: it may have happened, and nobody can tell any more."""

    def __init__(self, state: State, reason: Reason, message: str, host: str) -> None:
        super().__init__(message, host=host)
        self.state, self.reason = state, reason


class LaunchSteps:
    def __init__(self, hosts: DockerHosts, claims: DockerClaims, cpus: DedicatedCpus, made: ContainerSettings) -> None:
        self._hosts, self._claims, self._cpus, self._made = hosts, claims, cpus, made

    async def start(
        self, launch: Launch, parts: Sequence[tuple[int, int]], hosts: Sequence[str], say: Say, fresh: set[str]
    ) -> None:
        """Take all steps for these parts, each with its place; `hosts` has the host of each place. `fresh` are the
        containers that were made and not yet asked to start."""
        links = {hosts[number]: self._hosts.link(hosts[number]) for _, number in parts}
        await complete_all(self._image(link, launch, say) for link in links.values())
        say(State.LAUNCHING, Reason.PLACED, f"its image is on {', '.join(links)}")
        async with AsyncExitStack() as held:  # until they have started, what they mount stays as it was looked at
            networks = {name: await link.networks.of(launch.group) for name, link in links.items()}
            volumes = {
                name: await held.enter_async_context(self._claims.mounts(link, launch)) for name, link in links.items()
            }
            say(State.REQUESTED_LAUNCH, Reason.PLACED, f"its containers are made on {', '.join(links)}")
            places = [
                ContainerPlace(
                    host=host,
                    part=part,
                    number=number,
                    network=networks[host],
                    host_memory=int(links[host].info.get("MemTotal") or 1 << 30),
                    has_nvidia=has_nvidia(links[host].info),
                    volumes=volumes[host],
                    up_to=max(part for part, _ in parts),
                )
                for part, number in parts
                for host in [hosts[number]]
            ]
            await self._start(launch, places, fresh)

    async def _start(self, launch: Launch, places: Sequence[ContainerPlace], fresh: set[str]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)

        async def create(place: ContainerPlace) -> tuple[HostLink, ContainerRecord]:
            async with limit:
                link = self._hosts.link(place.host)
                return link, await self._create(link, launch, place, fresh)

        async def go(link: HostLink, seen: ContainerRecord) -> None:
            async with limit:
                await self._go(link, seen, launch, fresh)

        made = await complete_all(create(place) for place in places)
        await complete_all(self._cpus.keep_apart(link) for link in {link.host.name: link for link, _ in made}.values())
        await complete_all(go(link, seen) for link, seen in made)

    # -- what it needs -----------------------------------------------------------------------------------------------

    async def _image(self, link: HostLink, launch: Launch, say: Say) -> None:
        image = launch.spec.resources.image or self._made.image
        if not is_name(image):
            raise PenstockError(f"'{shorten(image)}' is not the name of an image.")
        if found := await link.api.image(image):
            refuse_marked(found, image)
            return
        say(State.PULLING, Reason.PULLING_IMAGE, f"{link.host.name} asks {registry_name(image)} for {image}")

        def said(text: str) -> None:
            say(State.REQUESTED_PULLING, Reason.PULLING_IMAGE, text)

        await pull(link.api, image, read_login(self._made.registry_config, image), said)

    # -- the container -----------------------------------------------------------------------------------------------

    async def _create(self, link: HostLink, launch: Launch, place: ContainerPlace, fresh: set[str]) -> ContainerRecord:
        """Return the container that is there, or a new one: never one whose start may have been asked for."""
        run = launch.run
        name = names.container_name(self._made.installation, launch.name, run, place.part)
        while True:
            there = [seen for seen in link.of(run) if seen.part == place.part and not seen.gone]
            if began := [seen for seen in there if not seen.prepared]:
                return began[0]
            doubtful = [seen for seen in there if seen.id not in fresh]
            try:
                new = next((seen for seen in there if seen.id in fresh), None)
                new = new or await self._make(link, launch, place, name, doubtful)
                break
            except DockerConflict:  # it was made before, or someone else took its name
                await self._look_at(link, name, run)
        for seen in doubtful:
            if ran := await withdraw(link, seen):
                await link.remove(new)
                return ran
        fresh.add(new.id)  # not before: until then it is all that knows of those it was made instead of
        return new

    async def _make(
        self, link: HostLink, launch: Launch, place: ContainerPlace, name: str, doubtful: Sequence[ContainerRecord]
    ) -> ContainerRecord:
        """Make a container instead of doubtful ones, which stay until it is there: what is missing was removed by
        someone else."""
        for seen in doubtful:
            if seen.name == name:
                await link.api.rename(seen.id, f"{name}.{seen.id[:12]}")
        instead = tuple(each for seen in doubtful for each in (*instead_of(seen), seen.id))
        place = replace(place, shared_cpus=shared_cpus(link), instead_of=instead)
        await link.api.create(name, container(launch, self._made, place))
        return await self._look_at(link, name, launch.run)

    async def _look_at(self, link: HostLink, name: str, run: Run) -> ContainerRecord:
        seen = await link.look(name)
        if seen is None or seen.run != run or seen.labels.get(Label.INSTALLATION) != self._made.installation:
            raise Conflict(
                f"There is a container {name} on {link.host.name} that Penstock did not make.",
                hint=f"docker rm {name}",
            )
        return seen

    async def _go(self, link: HostLink, seen: ContainerRecord, launch: Launch, fresh: set[str]) -> None:
        """Ask a new container to start, once."""
        if seen.id not in fresh:
            return
        try:
            await self._fill(link, seen, launch)
            fresh.discard(seen.id)
            await link.api.start(seen.id)
        except DockerNotConnected:
            fresh.add(seen.id)
            raise
        except DockerUnreachable:
            raise
        except DockerError as error:
            await self._not_started(link, seen, launch, error)
        await link.look(seen.id)

    async def _fill(self, link: HostLink, seen: ContainerRecord, launch: Launch) -> None:
        if files := _files(launch):
            await link.api.put(seen.id, "/", HttpBody.of(files, "application/x-tar"))
        if launch.workdir_archive is not None:
            await link.api.put(seen.id, WORKDIR, _archive(launch.workdir_archive))

    async def _not_started(self, link: HostLink, seen: ContainerRecord, launch: Launch, error: DockerError) -> None:
        """Raise, unless Docker has noted beside the container why it could not be started."""
        if is_about_mounts(error.message):
            volumes = [mount.volume for mount in launch.mounts]
            named = [each for each in volumes if len(volumes) == 1 or self._claims.name_of(each) in error.message]
            what = f"Volume {named[0].name}" if named else "A volume"
            raise PenstockError(f"{what} cannot be mounted on {link.host.name}: {mount_words(error.message)}.")
        after = await link.look(seen.id)
        if after is None or not (after.error or after.began):
            raise error


async def complete_all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Let all come to their end, then raise the first failure: nothing goes on behind it."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [each for each in done if not isinstance(each, BaseException)]


def _files(launch: Launch) -> bytes:
    """Pack what must be there before it starts: the minder's note, and directories that everyone can write to."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        if is_minded(launch):
            folder, note = tarfile.TarInfo(NOTE.strip("/").partition("/")[0]), tarfile.TarInfo(NOTE.lstrip("/"))
            folder.type, folder.mode, note.mode = tarfile.DIRTYPE, 0o755, 0o666
            archive.addfile(folder)
            archive.addfile(note, io.BytesIO())
        for path in [scratch.path for scratch in disk_scratch(launch)] + ([WORKDIR] if launch.workdir_archive else []):
            folder = tarfile.TarInfo(path.lstrip("/"))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if path != WORKDIR else 0o777
            archive.addfile(folder)
        return made.getvalue() if archive.getmembers() else b""


def _archive(path: Path) -> HttpBody:
    return HttpBody(path.stat().st_size, _pieces(path), "application/x-tar", ((b"Content-Encoding", b"gzip"),))


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while data := await asyncio.to_thread(file.read, PIECE):
            yield data


async def find_forgotten(link: HostLink, prepared: Sequence[ContainerRecord]) -> list[ContainerRecord]:
    """Return the containers of which Docker does not remember that it made them, or what they were made instead of: it
    was killed or restarted since, and what it calls created may have run."""
    if not prepared:
        return []
    memory = await read_memory(link.api)
    return [seen for seen in prepared if not all(memory.made(each) for each in (*instead_of(seen), seen.id))]


async def withdraw(link: HostLink, seen: ContainerRecord) -> ContainerRecord | None:
    """Take back a container that may have been started. Return None if it is gone and never ran, and neither did those
    it was made instead of; otherwise the container as it is, or was."""
    try:
        await link.remove(seen, force=False)
    except DockerConflict:
        return await link.look(seen.id)
    memory, ids = await read_memory(link.api), [*instead_of(seen), seen.id]
    for past in [memory.past[each] for each in ids if each in memory.past]:
        if past.started_at:
            return _as_it_was(link, seen, past)
    if not all(map(memory.made, ids)):
        raise start_in_doubt(link.api.host)
    return None


def instead_of(seen: ContainerRecord) -> list[str]:
    """Return the ids of the containers that were taken back before this one was made."""
    return [each for each in seen.labels.get(Label.INSTEAD_OF, "").split(",") if each]


def _as_it_was(link: HostLink, seen: ContainerRecord, past: ContainerPast) -> ContainerRecord:
    if past.exit_code is None:
        raise start_in_doubt(link.api.host)
    found = replace(seen, status="exited", started_at=past.started_at, ended_at=past.ended_at)
    found = replace(found, exit_code=past.exit_code, witness=link.docker)
    link.keep(found)
    return found


def start_in_doubt(host: str) -> StartFailed:
    said = f"Docker on {host} was asked to start it, the answer was lost, and Docker does not remember whether it ran."
    return StartFailed(State.UNKNOWN, Reason.NODE_LOST, said, host)
