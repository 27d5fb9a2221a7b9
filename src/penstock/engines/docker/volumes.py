"""Volumes as Docker has them: on one host's disk, or in a directory of an NFS storage.

An NFS volume is only a description on a host, made where it is needed: its data are on the storage, at
`export/group/path`, and a path never leaves its group's directory.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from penstock.domain.users import Account
from penstock.domain.volumes import Phase, Storage, StorageClass, StorageKind, Volume, parts_of, path_inside
from penstock.engines.base import BoundMount, Launch, VolumeReport
from penstock.engines.docker import names
from penstock.engines.docker.api.client import Fields
from penstock.engines.docker.api.errors import DockerConflict, DockerError, DockerUnreachable, is_disk_full
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.names import Label
from penstock.engines.docker.nfs import HOLD, WALK, is_about_mounts, mount_words, nfs_options
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.spec import VolumeDirectory
from penstock.engines.shared.records import volume_record
from penstock.errors import Conflict, InUse, PenstockError, Unavailable

STANDARD = "standard"
MOUNTED = "/volume"
WITH_SUBPATHS = (1, 45)
"""The first version of the API that mounts a directory of a volume."""
KIBIBYTE = 1024


class DockerClaims:
    def __init__(self, hosts: DockerHosts, made: ContainerSettings) -> None:
        self._hosts, self._made = hosts, made
        self._storages: dict[str, Storage] = {}
        self._homes: dict[str, str] = {}
        """Volume id → the host whose disk it is on, as last seen."""
        self._making = asyncio.Lock()

    def use(self, storages: Sequence[Storage]) -> None:
        self._storages = {storage.name: storage for storage in storages}

    def classes(self) -> list[StorageClass]:
        said = "a Docker volume on the disk of one node; jobs that use it run there"
        return [StorageClass(name=STANDARD, description=said, default=True)]

    # -- where it is -------------------------------------------------------------------------------------------------

    def storage_of(self, volume: Volume) -> Storage | None:
        """Return the storage a volume is on; None: the disk of whichever host it was made on, or is to be."""
        if volume.storage is None or volume.awaits_node:
            return None
        if volume.storage not in self._storages:
            raise PenstockError(f"Volume {volume.name} is on storage {volume.storage}, which no longer exists.")
        return self._storages[volume.storage]

    def _nfs_of(self, volume: Volume) -> Storage | None:
        storage = self.storage_of(volume)
        return storage if storage and storage.kind is StorageKind.nfs else None

    def name_of(self, volume: Volume) -> str:
        return f"{self._made.installation}-{volume.object_name}"

    async def home_of(self, volume: Volume) -> str | None:
        """Return the host whose disk a volume is on; None: it is not on any that answers, or can be had from all."""
        if self._nfs_of(volume):
            return None
        if volume.id not in self._homes:
            await self._look([volume])
        return self._homes.get(volume.id)

    async def node_of(self, volume: Volume) -> str | None:
        """Return the host that whatever uses a volume must run on; None: any. What was never made will be where its
        storage is."""
        home = await self.home_of(volume)
        storage = self._storages.get(volume.storage or "")
        if home or (storage and storage.kind is StorageKind.nfs):
            return home
        if storage:
            return storage.node
        if volume.made and (away := self._hosts.away(())):
            raise Unavailable(f"Volume {volume.name} cannot be located: {away[0]}.")
        return None

    async def _look(self, volumes: Sequence[Volume]) -> None:
        wanted = {self.name_of(volume): volume.id for volume in volumes}
        links = self._hosts.answering()
        filters = {"label": [names.ours_filter(self._made.installation)]}
        found = await asyncio.gather(*(link.api.volumes(filters) for link in links), return_exceptions=True)
        for link, there in zip(links, found, strict=True):
            if isinstance(there, BaseException):
                continue
            on_host = {str(each["Name"]) for each in there if not (each.get("Options") or {}).get("device")}
            for name, id_ in wanted.items():
                if name in on_host:
                    self._homes[id_] = link.host.name
                elif self._homes.get(id_) == link.host.name:
                    del self._homes[id_]

    # -- make and delete ---------------------------------------------------------------------------------------------

    async def create(self, volume: Volume, account: Account) -> None:
        if nfs := self._nfs_of(volume):
            await self._nfs(self._hosts.first(), volume, nfs, make=not volume.readonly)
            return
        async with self._making:
            storage, home = self.storage_of(volume), await self.home_of(volume)
            wanted = home or (storage.node if storage else None)
            link = self._hosts.link(wanted) if wanted else self._emptiest()
            await self._local(link, volume, account)
            self._homes[volume.id] = link.host.name

    def _emptiest(self) -> HostLink:
        """Return the host with the fewest volumes: what uses a volume runs where it is, so they are spread."""
        there = Counter(self._homes.values())
        links = [link for link in self._hosts.answering() if not link.host.maintenance]
        return min(links, key=lambda link: (there[link.host.name], link.host.name), default=None) or self._hosts.first()

    async def _local(self, link: HostLink, volume: Volume, account: Account) -> None:
        labels = self._labels(volume) | {Label.RECORD: volume_record(volume, account)}
        await self._make(link, volume, {"Name": self.name_of(volume), "Labels": labels})
        if self._made.run_as:
            words = ["chown", self._made.run_as, MOUNTED]
            await link.helpers.run(words, volumes={self.name_of(volume): MOUNTED}, read_only=False)

    async def _make(self, link: HostLink, volume: Volume, body: Fields) -> None:
        """Make a volume, unless it is there. A name is a claim: what others made by it is theirs."""
        made = await link.api.create_volume(body)
        if (made.get("Labels") or {}).get(Label.VOLUME) != volume.id:
            raise Conflict(
                f"There is a Docker volume {made.get('Name')} on {link.host.name} that Penstock did not make.",
                hint=f"docker volume rm {made.get('Name')}",
            )

    def _labels(self, volume: Volume) -> dict[str, str]:
        return {
            Label.INSTALLATION: self._made.installation,
            Label.VOLUME: volume.id,
            Label.NAME: volume.name,
            Label.OWNER: f"{volume.group}/{volume.user}",
            Label.GROUP: volume.group,
        }

    async def delete(self, volume: Volume) -> None:
        """Delete a volume. What is on an NFS storage stays there: only the hosts forget the way to it."""
        storage = self._storages.get(volume.storage or "")
        everywhere = storage is not None and storage.kind is StorageKind.nfs
        links = list(self._hosts.links())
        home = None if everywhere or (volume.storage and not storage) else await self.home_of(volume)
        if home and self._hosts.missing([home]):
            links = []  # should the node come back, the records know that it was deleted
        elif home:
            links = [self._hosts.link(home)]
        elif not everywhere and (away := self._hosts.away([storage.node] if storage else ())):
            raise Unavailable(f"Volume {volume.name} cannot be checked: {away[0]}.")
        for link in links:
            if link.answers:
                await self._delete(link, volume)
        self._homes.pop(volume.id, None)

    async def _delete(self, link: HostLink, volume: Volume) -> None:
        mine = {"label": [names.ours_filter(self._made.installation), f"{Label.VOLUME}={volume.id}"]}
        try:
            for each in await link.api.volumes(mine):
                await link.api.remove_volume(str(each["Name"]))
        except DockerConflict as error:
            if "in use" not in error.message:
                raise
            raise _in_use(volume, link.host.name, await self._mounting(link, volume)) from None

    # -- what is known of it -----------------------------------------------------------------------------------------

    async def reports(self, volumes: Sequence[Volume]) -> dict[str, VolumeReport]:
        await self._look([volume for volume in volumes if volume.storage is None or self._is_local(volume)])
        return {volume.id: self._report(volume) for volume in volumes}

    def _is_local(self, volume: Volume) -> bool:
        storage = self._storages.get(volume.storage or "")
        return storage is not None and storage.kind is StorageKind.local

    def _report(self, volume: Volume) -> VolumeReport:
        if volume.awaits_node:
            return VolumeReport(phase=Phase.Pending, message="is made on the node that uses it first")
        if volume.storage is not None and volume.storage not in self._storages:
            return VolumeReport(phase=Phase.Lost, message=f"storage {volume.storage} no longer exists")
        if volume.storage is not None and not self._is_local(volume):
            return VolumeReport(phase=Phase.Bound)
        home = self._homes.get(volume.id)
        if home and (away := self._hosts.away([home])):
            return VolumeReport(phase=Phase.Bound, message=f"as it was last known: {away[0]}")
        if home:
            link = self._hosts.get(home)
            return VolumeReport(phase=Phase.Bound, message=f"on {home}", free_bytes=link.space.free if link else None)
        if away := self._hosts.away(()):
            raise Unavailable(f"Volume {volume.name} cannot be checked: {away[0]}.")
        return VolumeReport(phase=Phase.Lost, message="no node has its Docker volume")

    async def usage(self, volume: Volume) -> int:
        name = self.name_of(volume)
        if nfs := self._nfs_of(volume):
            link = self._hosts.first()
            await self._nfs(link, volume, nfs, make=not volume.readonly)
            [size] = await self.measured(link, [name])
            return size
        home = await self.home_of(volume)
        if home is None:
            raise Unavailable(f"No node that answers has the data of volume {volume.name}.")
        link = self._hosts.link(home)
        try:
            [size], _ = await asyncio.gather(self.measured(link, [name]), link.space.look())
        except DockerError as error:
            if not is_disk_full(error):
                raise
            size = await link.api.volume_size(name)  # there is no room for what looks
        return size

    async def measured(self, link: HostLink, volumes: Sequence[str]) -> list[int]:
        """Return what each of these Docker volumes holds, in bytes."""
        if not volumes:
            return []
        paths = _paths(volumes)
        said = await link.helpers.run(["du", "-sk", *paths.values()], volumes=paths)
        sizes = {path: int(size) for size, path in (line.split(None, 1) for line in said.splitlines())}
        return [sizes[path] * KIBIBYTE for path in paths.values()]

    async def emptied(self, link: HostLink, volumes: Sequence[str]) -> None:
        paths = _paths(volumes)
        find = ["find", *paths.values(), "-mindepth", "1", "-maxdepth", "1"]
        await link.helpers.run([*find, "-exec", "rm", "-rf", "--", "{}", "+"], volumes=paths, read_only=False)

    async def users(self, volume: Volume) -> list[str]:
        """Name the containers that use a volume and are none of ours."""
        found = [
            f"{_named(each)} on {link.host.name}"
            for link in self._hosts.answering()
            for each in await self._mounting(link, volume)
            if (each.get("Labels") or {}).get(Label.INSTALLATION) != self._made.installation
        ]
        return sorted(found)

    async def _mounting(self, link: HostLink, volume: Volume) -> list[Fields]:
        """List the containers that have a volume: those that have ended have it, too, until they are removed."""
        return await link.api.containers({"volume": [self.name_of(volume)]})

    # -- for a run ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def mounts(self, link: HostLink, launch: Launch) -> AsyncIterator[dict[str, VolumeDirectory]]:
        """Make the volumes of a launch ready on this host and say where each mount path comes from. What is on NFS
        storages is mounted as long as the block lasts, so that containers that start meanwhile get just what was
        looked at."""
        found = {mount.path: await self._source(link, mount, launch.account) for mount in launch.mounts}
        shared: dict[str, dict[str, str]] = {}
        for mount in launch.mounts:
            if storage := self._nfs_of(mount.volume):
                inside = path_inside(mount.volume, mount.sub_path)
                shared.setdefault(storage.name, {})[found[mount.path].volume] = inside
        async with AsyncExitStack() as held:
            for name, directories in shared.items():
                await held.enter_async_context(self._held(link, self._storages[name], directories))
            yield found

    async def _source(self, link: HostLink, mount: BoundMount, account: Account) -> VolumeDirectory:
        volume, below = mount.volume, mount.sub_path
        if nfs := self._nfs_of(volume):
            make = not (mount.read_only or volume.readonly)
            return VolumeDirectory(await self._nfs(link, volume, nfs, below, make=make))
        storage, home = self.storage_of(volume), await self.home_of(volume)
        if home is None and not volume.made and storage and storage.node == link.host.name:
            await self.create(volume, account)
            home = link.host.name
        if home != link.host.name:
            where = f"is on {home}" if home else "is not there"
            raise PenstockError(
                f"Volume {volume.name} {where}, and the job was placed on {link.host.name}.",
                hint="choose that node, or keep the data on an NFS storage",
            )
        name = self.name_of(volume)
        if below is None:
            return VolumeDirectory(name)
        parts = parts_of(below, volume.group)
        if link.api.version < WITH_SUBPATHS:
            raise PenstockError(
                f"Docker on {link.host.name} cannot mount a directory inside volume {volume.name}: 26.0 and newer can.",
                hint="mount all of it, or keep the data on an NFS storage",
            )
        await self._walk(link, name, parts, make=not mount.read_only)
        return VolumeDirectory(name, below)

    # -- NFS -----------------------------------------------------------------------------------------------------------

    async def _nfs(
        self, link: HostLink, volume: Volume, storage: Storage, below: str | None = None, *, make: bool
    ) -> str:
        """Return the name of a Docker volume for a directory on an NFS storage, once the directory is there."""
        inside = path_inside(volume, below)
        mark = f"-{hashlib.sha256(below.encode()).hexdigest()[:12]}" if below else ""
        name = f"{self.name_of(volume)}{mark}"
        async with self._export(link, storage, read_only=not make) as root:
            with _storage_errors(link, storage):
                await self._walk(link, root, inside.split("/"), make=make)
        options = nfs_options(storage, inside, read_only=volume.readonly)
        await self._make(link, volume, {"Name": name, "Labels": self._labels(volume)} | options)
        return name

    @asynccontextmanager
    async def _held(self, link: HostLink, storage: Storage, directories: Mapping[str, str]) -> AsyncIterator[None]:
        """Keep directories of a storage mounted; they are Docker volume → path. Docker follows every link when it
        mounts one, and whoever may write beside it can put one there at any moment: so what it has mounted is compared
        with what lies at the path, and Docker mounts a volume once for all containers that have it."""
        places = _paths(directories)
        words = ["sh", "-c", HOLD, "sh", MOUNTED]
        words += [word for name, path in directories.items() for word in (places[name], path)]
        async with AsyncExitStack() as held:
            root = await held.enter_async_context(self._export(link, storage, read_only=True))
            with _storage_errors(link, storage):
                await held.enter_async_context(link.helpers.hold(words, {root: MOUNTED} | places))
            yield

    @asynccontextmanager
    async def _export(self, link: HostLink, storage: Storage, *, read_only: bool) -> AsyncIterator[str]:
        """Make a Docker volume of all of a storage, as long as the block lasts."""
        root = f"{self._made.installation}-storage-{storage.name}-{secrets.token_hex(4)}"
        labels = {Label.INSTALLATION: self._made.installation, Label.NAME: storage.name}
        await link.api.create_volume({"Name": root, "Labels": labels} | nfs_options(storage, "", read_only=read_only))
        try:
            yield root
        finally:
            await link.api.remove_volume(root)

    async def _walk(self, link: HostLink, name: str, parts: Sequence[str], *, make: bool) -> None:
        words = ["sh", "-c", WALK, "sh", MOUNTED, "make" if make else "", *parts]
        await link.helpers.run(words, volumes={name: MOUNTED}, read_only=not make)


@contextmanager
def _storage_errors(link: HostLink, storage: Storage) -> Iterator[None]:
    """Say plainly why a storage cannot be used on a host."""
    try:
        yield
    except DockerUnreachable:
        raise
    except DockerError as error:
        verb = "mounted" if is_about_mounts(error.message) else "used"
        raise PenstockError(
            f"The storage {storage.name} ({storage.mount}) cannot be {verb} on {link.host.name}: "
            f"{mount_words(error.message)}."
        ) from error


def _paths(volumes: Iterable[str]) -> dict[str, str]:
    """Say where a helper finds each of these Docker volumes."""
    return {name: f"{MOUNTED}-{number}" for number, name in enumerate(volumes)}


def _named(container: Fields) -> str:
    return str(container["Names"][0]).lstrip("/")


def _in_use(volume: Volume, host: str, containers: Sequence[Fields]) -> InUse:
    """Say what uses a volume; containers that have ended do as well, since they have their logs."""
    named = f" by {', '.join(map(_named, containers[:10]))}" if containers else ""
    ids = [id_ for each in containers if (id_ := (each.get("Labels") or {}).get(Label.WORKLOAD))]
    hint = f"first penstock delete wk {ids[0]}" if ids else "delete what used it, then try again"
    return InUse(f"Volume {volume.name} is in use on {host}{named}.", hint=hint)
