"""Nodes and storages that admins write down: Docker hosts to run on, NFS exports and disks to keep volumes on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from penstock.domain.names import shorten
from penstock.domain.nodes import Host
from penstock.domain.policy import SHARED_GROUP, Kind, Verb
from penstock.domain.users import Caller
from penstock.domain.volumes import Storage, StorageKind
from penstock.engines.base import Engine
from penstock.errors import Conflict, NotFound
from penstock.services import audit
from penstock.store.database import Database
from penstock.store.session import Store

Place = Host | Storage
LOCAL = "-local"
"""What a node's own disk is called after the node's name."""


class Places:
    def __init__(self, db: Database, engine: Engine) -> None:
        self._db = db
        self._engine = engine
        self._hosts: dict[str, Host] = {}
        self._storages: dict[str, Storage] = {}
        self._here: list[str] = []
        """This machine, where the engine is on it."""

    async def open(self) -> None:
        hosts, storages = await self._db.read(
            lambda tx: (tx.registered.all(Kind.Node), tx.registered.all(Kind.Storage)),
        )
        self._hosts = {host.name: host for host in map(_read_host, hosts)}
        self._storages = {storage.name: storage for storage in map(Storage.model_validate_json, storages)}
        self._here = [node.name for node in await self._engine.nodes()] if self._engine.name == "local" else []
        await self._engine.use_hosts(self.hosts, list(self._all()))

    # what there is

    @property
    def hosts(self) -> list[Host]:
        return [self._hosts[name] for name in sorted(self._hosts)]

    def storages(self, caller: Caller) -> list[Storage]:
        """Those the caller may see; each node's own disk is one without being written down."""
        return [each for each in self._all() if caller.reaches(Verb.get, Kind.Storage, each.group)]

    def registered(self, caller: Caller) -> list[Host]:
        """The nodes the caller may see that a document brought here."""
        return [host for host in self.hosts if caller.reaches(Verb.get, Kind.Node, host.group)]

    def storage(self, caller: Caller, name: str) -> Storage:
        """One the caller may keep volumes on."""
        found = next((each for each in self._all() if each.name == name), None)
        if found is None or not caller.rights.may(Verb.use, Kind.Storage, found.group):
            raise NotFound(f"Storage {shorten(name)} not found", hint="penstock get storage shows those you may use")
        return found

    def _all(self) -> Iterable[Storage]:
        groups = {host.name: host.group for host in self._hosts.values()} | dict.fromkeys(self._here, SHARED_GROUP)
        local = {
            f"{node}{LOCAL}": Storage(name=f"{node}{LOCAL}", group=group, kind=StorageKind.local, node=node)
            for node, group in groups.items()
        }
        known = local | self._storages
        return [known[name] for name in sorted(known)]

    def known(self, kind: Kind, name: str) -> Place | None:
        """As it is written down; a node's own disk is known without that."""
        if kind is Kind.Storage:
            return next((each for each in self._all() if each.name == name), None)
        return self._hosts.get(name)

    # changing

    async def put(self, caller: Caller, place: Place) -> str:
        """`created`, `configured` or `not changed`. A name is taken once, whatever the group."""
        kind = kind_of(place)
        known = self._known(kind).get(place.name)
        verb = Verb.update if known else Verb.create
        if known == place:
            return "not changed"
        caller.require(verb, kind, place.group)
        if known and known.group != place.group:
            said = f"{kind} {place.name} is there already, in another group."
            raise Conflict(said, hint="delete it first, or take another name")

        def write(tx: Store) -> None:
            tx.registered.put(kind, place.group, place.name, place.model_dump_json())
            audit.note(tx, caller, verb, kind, group=place.group, name=place.name)

        await self._db.write(write)
        await self.open()
        return "configured" if known else "created"

    async def remove(self, caller: Caller, kind: Kind, name: str) -> Place:
        known = self._known(kind).get(name)
        if known is None or not caller.rights.may(Verb.get, kind, known.group):
            raise NotFound(f"{kind} {shorten(name)} not found")
        caller.require(Verb.delete, kind, known.group)
        group = known.group

        def write(tx: Store) -> None:
            _refuse_used(tx, kind, name)
            tx.registered.remove(kind, group, name)
            audit.note(tx, caller, Verb.delete, kind, group=group, name=name)

        await self._db.write(write)
        await self.open()
        return known

    def _known(self, kind: Kind) -> dict[str, Host] | dict[str, Storage]:
        return self._hosts if kind is Kind.Node else self._storages


@lru_cache(maxsize=4096)
def _read_host(text: str) -> Host:
    """All are read again whenever one changes; most are as they were."""
    return Host.model_validate_json(text)


def kind_of(place: Place) -> Kind:
    return Kind.Node if isinstance(place, Host) else Kind.Storage


def _refuse_used(tx: Store, kind: Kind, name: str) -> None:
    if kind is Kind.Node:
        running = [each for each in tx.workloads.active() if name in each.hosts]
        if running:
            named = ", ".join(f"{each.name} ({each.id})" for each in running[:10])
            raise Conflict(
                f"Node {name} runs {named}.", hint="set maintenance: true, and delete it when they have ended"
            )
        return
    if on_it := _volumes_on(tx, name):
        raise Conflict(f"Storage {name} has volumes: {', '.join(on_it[:10])}.", hint="delete them first")


def _volumes_on(tx: Store, storage: str) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        volumes, cursor = tx.volumes.page(None, limit=500, cursor=cursor)
        found += [each.name for each in volumes if each.storage == storage]
        if cursor is None:
            return found
