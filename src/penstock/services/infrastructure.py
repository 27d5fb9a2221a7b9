"""Keep the nodes and storages that admins register: Docker hosts, NFS exports and disks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from penstock.domain.names import shorten
from penstock.domain.nodes import Host
from penstock.domain.policy import SHARED_GROUP, Kind, Verb
from penstock.domain.users import Caller
from penstock.domain.volumes import Storage, StorageKind, Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine, HasCluster, HasHosts, Run
from penstock.errors import Conflict, NotFound, PenstockError, Problem, Unavailable
from penstock.services import audit
from penstock.store.database import Database
from penstock.store.session import Store

Place = Host | Storage
LOCAL = "-local"
"""The end of the name of a node's own disk, after the node's name."""
STAYS = "delete it first, or take another name"
MOVES = (
    "correct the address; or set maintenance: true, and change it when they have ended; if the host is gone for good: "
    "penstock delete node {} --force"
)
GONE = "penstock delete node {} --force"
NAMED = 10
"""How many are named in one sentence."""


class Infrastructure:
    def __init__(self, db: Database, engine: Engine, touch: Callable[[str], None]) -> None:
        self._db = db
        self._engine = engine
        self._touch = touch
        """Has the reconciler look at a workload."""
        self._hosts: dict[str, Host] = {}
        self._storages: dict[str, Storage] = {}
        self._here: list[str] = []
        """The node that is this machine, where the engine is on it."""

    async def open(self) -> None:
        hosts, storages = await self._db.read(
            lambda tx: (tx.registered.all(Kind.Node), tx.registered.all(Kind.Storage)),
        )
        self._hosts = {host.name: host for host in map(Host.model_validate_json, hosts)}
        self._storages = {storage.name: storage for storage in map(Storage.model_validate_json, storages)}
        if isinstance(self._engine, HasHosts):
            await self._engine.use_hosts(self.hosts, list(self._all()))
        elif not isinstance(self._engine, HasCluster):
            self._here = [node.name for node in await self._engine.nodes()]

    # what there is

    @property
    def hosts(self) -> list[Host]:
        return [self._hosts[name] for name in sorted(self._hosts)]

    def storages(self, caller: Caller) -> list[Storage]:
        return [each for each in self._all() if caller.reaches(Verb.get, Kind.Storage, each.group)]

    def registered(self, caller: Caller) -> list[Host]:
        return [host for host in self.hosts if caller.reaches(Verb.get, Kind.Node, host.group)]

    def storage(self, caller: Caller, name: str) -> Storage:
        """Return a storage on which the caller may keep volumes."""
        found = next((each for each in self._all() if each.name == name), None)
        if found is None or not caller.rights.may(Verb.use, Kind.Storage, found.group):
            raise NotFound(f"Storage {shorten(name)} not found", hint="penstock get storage shows those you may use")
        return found

    def here(self) -> Storage | None:
        """Return this machine's own disk, where the engine is on this machine."""
        return next((each for each in self._all() for node in self._here if each.name == f"{node}{LOCAL}"), None)

    def _all(self) -> Iterable[Storage]:
        groups = {host.name: host.group for host in self._hosts.values()} | dict.fromkeys(self._here, SHARED_GROUP)
        local = {
            f"{node}{LOCAL}": Storage(name=f"{node}{LOCAL}", group=group, kind=StorageKind.local, node=node)
            for node, group in groups.items()
        }
        known = local | self._storages
        return [known[name] for name in sorted(known)]

    def known(self, kind: Kind, name: str) -> Place | None:
        """Return a node or storage as it is registered; a node's own disk is known without that."""
        if kind is Kind.Storage:
            return next((each for each in self._all() if each.name == name), None)
        return self._hosts.get(name)

    def conflict(self, place: Place, coming: Iterable[Host] = ()) -> Problem | None:
        """Return what is in the way of this place among those that are there or `coming` with it: a place stays in its
        group, and no two are the same."""
        known = self.known(kind_of(place), place.name)
        if known and known.group != place.group:
            return Problem(f"{kind_of(place)} {place.name} already exists in another group.", field="group", hint=STAYS)
        if isinstance(place, Storage):
            return _not_its_disk(place, {*self._hosts, *self._here})
        addresses = {host.name: host.address for host in (*self._hosts.values(), *coming)}
        same = [name for name, address in addresses.items() if address == place.address and name != place.name]
        if same:
            return Problem(f"Node {min(same)} has that address.", field="address", hint="one engine is one node")
        disk = self._storages.get(f"{place.name}{LOCAL}")
        return _not_its_disk(disk, {place.name}) if disk else None

    # changing

    async def put(self, caller: Caller, place: Place, coming: Iterable[Host] = ()) -> str:
        """Register a place and return `created`, `configured` or `not changed`. A name is taken once, whatever the
        group."""
        kind = kind_of(place)
        known = self.known(kind, place.name)
        verb = Verb.update if known else Verb.create
        if known == place:
            return "not changed"
        caller.require(verb, kind, place.group)
        if conflict := self.conflict(place, coming):
            raise Conflict(conflict["message"], hint=conflict["hint"])
        there = await self._found_again(known, place)

        def write(tx: Store) -> None:
            if there is not None and (new := [each for each in _running_on(tx, place.name) if each.id not in there]):
                raise Conflict(f"Node {place.name} runs {named(new)} since a moment ago.", hint="try again")
            tx.registered.put(kind, place.group, place.name, place.model_dump_json())
            audit.note(tx, caller, verb, kind, group=place.group, name=place.name)

        await self._db.write(write)
        await self.open()
        return "configured" if known else "created"

    async def refuse_other_engine(self, place: Place) -> None:
        """Refuse a new address of a node where `put` would refuse it."""
        await self._found_again(self.known(kind_of(place), place.name), place)

    async def _found_again(self, known: Place | None, host: Place) -> set[str] | None:
        """Return what runs on a node that gets another address, once it is seen to be there as well. Another engine
        would show nothing of it, and what is not shown is taken for gone."""
        if not isinstance(known, Host) or not isinstance(host, Host) or known.address == host.address:
            return None
        if not isinstance(self._engine, HasHosts):
            return None
        running = await self._db.read(lambda tx: _running_on(tx, host.name))
        if not running:
            return set()
        by_id = {each.id: each for each in running}
        hint = MOVES.format(host.name)
        try:
            lacking = [by_id[run.workload_id] for run in await self._engine.lacking(host, list(map(Run.of, running)))]
        except PenstockError as error:
            why = " ".join(str(each) for each in error.problems) or error.message
            said = f"Node {host.name} runs {named(running)}; whether that is at {host.address} cannot be seen: {why}"
            raise Conflict(said, hint=hint) from error
        if lacking:
            said = f"Node {host.name} runs {named(lacking)}, and that is not at {host.address}: it is another Docker."
            raise Conflict(said, hint=hint)
        return set(by_id)

    async def remove(self, caller: Caller, kind: Kind, name: str, *, force: bool = False) -> list[Workload]:
        """Remove a place that nothing uses; with `force` also a node that does not answer. Returns what ran there
        alone: nobody will ever know what became of it."""
        known = self._hosts.get(name) if kind is Kind.Node else self._storages.get(name)
        if known is None or not caller.reaches(Verb.get, kind, known.group):
            raise NotFound(f"{kind} {shorten(name)} not found")
        caller.require(Verb.delete, kind, known.group)
        group = known.group
        answers = kind is Kind.Node and any(node.name == name and node.ready for node in await self._engine.nodes())
        if kind is Kind.Node and not (force and not answers):
            await self._db.read(lambda tx: _had(tx, name, answers=answers, force=force))
            await self._refuse_home(name, answers=answers)

        def write(tx: Store) -> list[Workload]:
            lost = _had(tx, name, answers=answers, force=force) if kind is Kind.Node else _refuse_used(tx, name)
            tx.registered.remove(kind, group, name)
            audit.note(tx, caller, Verb.delete, kind, group=group, name=name)
            return lost

        lost = await self._db.write(write)
        await self.open()
        for workload in lost:
            self._touch(workload.id)
        return [workload for workload in lost if set(workload.hosts) == {name}]

    async def _refuse_home(self, node: str, *, answers: bool) -> None:
        """Refuse to remove a node that has volumes on its disk: they go with it."""
        volumes = await self._db.read(_all_volumes)
        on_it = [each.name for each in volumes if each.made and await self._may_be_on(each, node, answers=answers)]
        if not on_it:
            return
        more = f" and {len(on_it) - NAMED} more" if len(on_it) > NAMED else ""
        hint = "delete them first" if answers else f"if it is gone for good, with their data: {GONE.format(node)}"
        raise Conflict(f"Node {node} has volumes: {', '.join(on_it[:NAMED])}{more}.", hint=hint)

    async def _may_be_on(self, volume: Volume, node: str, *, answers: bool) -> bool:
        try:
            return isinstance(self._engine, HasHosts) and await self._engine.volume_node(volume) == node
        except Unavailable:  # it is on one of those that do not answer
            return not answers


def kind_of(place: Place) -> Kind:
    return Kind.Node if isinstance(place, Host) else Kind.Storage


def _not_its_disk(storage: Storage, nodes: Collection[str]) -> Problem | None:
    """Refuse a storage with the name of a node's own disk: volumes are on that disk by the name."""
    node = storage.name.removesuffix(LOCAL)
    if node == storage.name or node not in nodes or storage.node == node:
        return None
    said = f"Storage {storage.name} is what the disk of node {node} is called."
    return Problem(said, field="name", hint="take another name")


def _had(tx: Store, node: str, *, answers: bool, force: bool) -> list[Workload]:
    """Return the workloads that run on a node, as far as is known."""
    running = _running_on(tx, node)
    if not running or (force and not answers):
        return running
    if answers:
        hint = "set maintenance: true, and delete it when they have ended"
        raise Conflict(f"Node {node} runs {named(running)}.", hint=hint)
    said = f"Node {node} does not answer; when it last did, it had {named(running)}."
    hint = (
        f"if it is gone for good: penstock delete node {node} --force; then they are UNKNOWN, and their GPUs given back"
    )
    raise Conflict(said, hint=hint)


def _running_on(tx: Store, node: str) -> list[Workload]:
    return [each for each in tx.workloads.active() if node in each.hosts]


def named(workloads: Sequence[Workload]) -> str:
    more = f" and {len(workloads) - NAMED} more" if len(workloads) > NAMED else ""
    return ", ".join(f"{each.name} ({each.id})" for each in workloads[:NAMED]) + more


def lost_message(workloads: Sequence[Workload]) -> str | None:
    return f"UNKNOWN from now on, for nobody can ask any more: {named(workloads)}" if workloads else None


def _refuse_used(tx: Store, storage: str) -> list[Workload]:
    if on_it := [each.name for each in _all_volumes(tx) if each.storage == storage]:
        raise Conflict(f"Storage {storage} has volumes: {', '.join(on_it[:NAMED])}.", hint="delete them first")
    return []


def _all_volumes(tx: Store) -> list[Volume]:
    found: list[Volume] = []
    cursor: str | None = None
    while True:
        volumes, cursor = tx.volumes.page(None, limit=500, cursor=cursor)
        found += volumes
        if cursor is None:
            return found
