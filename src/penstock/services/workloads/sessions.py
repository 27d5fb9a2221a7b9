"""Run programs that people start inside a job, or in a workload that only holds a volume for them.

Such a workload lives as long as the connection it was made for. A server that is killed leaves it running; the next one
finds it by its mark and ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from penstock.background import Tasks
from penstock.domain.engines import ENGINES
from penstock.domain.model import now
from penstock.domain.names import NAME_LIMIT, new_id, shorten
from penstock.domain.policy import Verb
from penstock.domain.states import State
from penstock.domain.users import Caller, Proof
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Mount, Requests, Resources, Spec, Unit, Workload
from penstock.engines.base import Engine, Run, Session, Terminal, namespace_of
from penstock.errors import Conflict, Forbidden, Invalid, NotFound, PenstockError, Unavailable
from penstock.services import audit, lookup
from penstock.services.people.accounts import account_of
from penstock.services.reconcile.reconciler import Reconciler
from penstock.services.wakeup import Wakeup
from penstock.services.workloads.references import (
    is_literal,
    is_mountable,
    literal,
    literal_id,
    may_write,
    mounted_volumes,
)
from penstock.services.workloads.retry import not_theirs
from penstock.services.workloads.workloads import Workloads
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
_LETTERS = '[ "$LC_ALL$LC_CTYPE$LANG" ] || export LANG=C.UTF-8'
"""Sets a language: most images name none, and then a shell does not know what it is typed beyond ASCII."""
SHELL = ("sh", "-c", f"{_LETTERS}; bash -c : >/dev/null 2>&1 && exec bash; exec sh")
VOLUME_PATH = "/volume"
LONGEST = 12 * 3600
"""Seconds a shell on a volume may be open."""
QUIET_SECONDS = 1.0
"""Seconds until whoever waits for a shell is told what it waits for."""
END_SECONDS = 10.0
SESSIONS_EACH = 200
"""How many one user may have open."""

Say = Callable[[str], Awaitable[None]]


@dataclass(eq=False)
class Sessions:
    _db: Database
    _engine: Engine
    _settings: Settings
    _workloads: Workloads
    _reconciler: Reconciler
    _wakeup: Wakeup
    _open: Counter[str] = field(default_factory=Counter, init=False)
    _connected: Counter[tuple[str, str, int]] = field(default_factory=Counter, init=False)
    """Connections by user, workload and port."""
    _ending: Tasks = field(default_factory=Tasks, init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def recover(self) -> None:
        """End the shells of a server that is gone."""
        for workload in await self._db.read(lambda tx: tx.workloads.active()):
            if workload.session:
                self.end_later(workload)

    def stop(self) -> None:
        """Tell whoever has a session open that the server is about to stop."""
        self._stopping.set()

    async def stopped(self) -> None:
        await self._stopping.wait()

    async def close(self) -> None:
        await self._ending.close()

    # in a job

    @asynccontextmanager
    async def entering(self, caller: Caller, ref: str, part: int | None) -> AsyncIterator[tuple[Workload, int]]:
        """Find the workload that is meant, and which part of it. All that can be wrong before a program starts is
        said."""
        with self._counted(caller):
            workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref, Verb.exec))
            await self.require_entry(workload, caller)
            if problem := lookup.part_problem(workload, part):
                raise Invalid(f"{workload.name} ({workload.id}) has no such part.", problems=[problem])
            yield workload, await self.running_part(workload, part)

    async def require_entry(self, workload: Workload, caller: Caller) -> None:
        """Refuse to let the caller in unless the workload is their own: to a shell on a volume always, to a job where
        it mounts what they may not. Whoever is inside has all that the workload has."""
        if caller.user == workload.user:
            return
        if workload.session:
            said = f"{workload.name} ({workload.id}) is a shell of {workload.user} on a volume: nobody else enters it."
            raise Forbidden(said, hint="open your own: penstock volumes shell")
        volumes = await mounted_volumes(self._db, self._engine, workload)
        if problems := not_theirs(workload, volumes, "you", caller.rights):
            said = "; ".join(problem["message"] for problem in problems)
            raise Forbidden(f"{workload.name} ({workload.id}) mounts what you may not: {said}.")

    @asynccontextmanager
    async def exec(
        self, caller: Caller, workload: Workload, part: int, command: Sequence[str], terminal: Terminal | None
    ) -> AsyncIterator[Session]:
        """Run a program in a job. It ends when this does."""
        opening = partial(self._engine.exec, command=tuple(command) or SHELL, terminal=terminal)
        async with self._started(workload, part, opening) as session:
            await self._db.write(lambda tx: audit.note_of(tx, caller, Verb.exec, workload, _program(command)))
            yield session

    @asynccontextmanager
    async def connect(
        self, caller: Caller, ref: str, part: int | None, port: int
    ) -> AsyncIterator[tuple[Workload, Session]]:
        """Connect to a program of the job that listens. Of several connections at once only the first is noted."""
        async with self.entering(caller, ref, part) as (workload, chosen):
            key = (caller.user, workload.id, port)
            async with self._started(workload, chosen, partial(self._engine.connect, port=port)) as session:
                self._connected[key] += 1
                try:
                    if self._connected[key] == 1:
                        said = f"port {port}"
                        await self._db.write(lambda tx: audit.note_of(tx, caller, Verb.exec, workload, said))
                    yield workload, session
                finally:
                    self._connected[key] -= 1
                    self._connected += Counter()  # without those that are 0

    @asynccontextmanager
    async def _started(
        self, workload: Workload, part: int, opening: Callable[[Run, int], Awaitable[Session]]
    ) -> AsyncIterator[Session]:
        try:
            session = await opening(Run.of(workload), part)
        except Conflict as error:
            raise named_conflict(workload, part, error) from error
        try:
            yield session
        finally:
            await session.close()

    async def running_part(self, workload: Workload, part: int | None) -> int:
        """Return the part that is meant: the first that runs, unless one is named."""
        if workload.status != "running":
            raise _not_running(workload)
        return await self._first_running(workload, Run.of(workload)) if part is None else part

    async def _first_running(self, workload: Workload, run: Run) -> int:
        if workload.spec.parts == 1:
            return 0
        units = (await self._engine.observe(run)).units
        parts = [_part(workload, unit) for unit in units if unit.state is State.RUNNING]
        if not parts:
            raise Conflict(f"No {_word(workload)} of {workload.name} ({workload.id}) runs at the moment.")
        return min(parts)

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        if self._stopping.is_set():
            raise Unavailable("The server is stopping.")
        if self._open[caller.user] >= SESSIONS_EACH:
            raise Conflict(
                f"You have {SESSIONS_EACH} programs and connections open in jobs already.", hint="close some of them"
            )
        self._open[caller.user] += 1
        try:
            yield
        finally:
            self._open[caller.user] -= 1

    # on a volume

    @asynccontextmanager
    async def holding(self, caller: Caller, ref: str) -> AsyncIterator[tuple[Volume, Workload]]:
        """Hold a volume by a workload of the caller's that mounts it and waits, for as long as this lasts."""
        with self._counted(caller):
            volume = await self._volume(caller, ref)
            if self._unmounted:
                self._require_write(volume, caller)  # nothing would keep it from writing
            workload = await self._db.write(partial(self._add, caller, volume))
            self._reconciler.submitted(workload)
            try:
                yield volume, workload
            finally:
                # Usually it is gone in a moment, and the volume is free again.
                await asyncio.wait([self.end_later(workload)], timeout=END_SECONDS)

    async def require_hold(self, volume: Volume, workload: Workload, caller: Caller) -> None:
        """Refuse where the workload writes and its owner may not any more."""
        if self._unmounted or not workload.spec.mounts[0].read_only:
            self._require_write(volume, caller)

    def _require_write(self, volume: Volume, caller: Caller) -> None:
        if not _writable(volume, caller) and not volume.read_only:
            hint = f"to write you need 'upload' on Volume in group {volume.group}"
            raise Forbidden(f"You may not write to volume {volume.name} of group {volume.group}.", hint=hint)

    async def _volume(self, caller: Caller, ref: str) -> Volume:
        try:
            return await self._db.read(lambda tx: lookup.volume(tx, caller, ref, Verb.exec))
        except NotFound:
            if found := await literal(self._db, self._engine, caller, ref, Verb.exec):
                return found
            raise

    def _add(self, caller: Caller, volume: Volume, tx: Store) -> Workload:
        """Store the workload, unless someone has deleted the volume meanwhile."""
        volume_id = literal_id(volume.name) if is_literal(volume) else volume.id
        if not is_mountable(tx, volume_id):
            raise NotFound(f"Volume {volume.name} not found")
        moment = now()
        workload = Workload(
            id=new_id(),
            name=_name(volume),
            group=caller.group,
            namespace=namespace_of(self._engine, caller.user, caller.group),
            user=caller.user,
            account=account_of(caller, self._settings),
            spec=self._spec(volume, read_only=not _writable(volume, caller)),
            volume_ids={VOLUME_PATH: volume_id},
            session=True,
            created_at=moment,
            updated_at=moment,
        )
        tx.workloads.add(workload)
        audit.note_of(tx, caller, Verb.exec, volume)
        return workload

    def _spec(self, volume: Volume, *, read_only: bool) -> Spec:
        """Describe the workload. It asks for as good as nothing: a full machine must not keep anyone from their
        data."""
        cpus = 10 if self._engine.schedules else 0
        return Spec(
            name=_name(volume),
            resources=Resources(image=self._engine.helper_image, requests=Requests(cpus_milli=cpus)),
            mounts=(Mount(path=VOLUME_PATH, volume=volume.name, read_only=read_only),),
            workdir=None if self._unmounted else VOLUME_PATH,
            run=("sleep", str(LONGEST)),
            max_duration=LONGEST,
            stop_grace=1,
            ttl=0,
        )

    @property
    def _unmounted(self) -> bool:
        """Are volumes not mounted? Without a sandbox a job is only told where they are."""
        return ENGINES[self._settings.engine].here and self._settings.sandbox == "none"

    @asynccontextmanager
    async def shell(
        self, workload: Workload, command: Sequence[str], terminal: Terminal | None, say: Say
    ) -> AsyncIterator[Session]:
        """Run a program on the volume, as soon as its workload runs."""
        running = await self._until_running(workload, say)
        if self._unmounted:
            variable = workload.spec.mounts[0].volume.upper().replace("-", "_")
            go = f'cd "$PENSTOCK_VOLUME_{variable}" && exec "$@"'
            command = ("sh", "-c", go, "sh", *(command or SHELL))
        opening = partial(self._engine.exec, command=tuple(command) or SHELL, terminal=terminal)
        async with self._started(running, 0, opening) as session:
            yield session

    async def _until_running(self, workload: Workload, say: Say) -> Workload:
        said: str | None = None
        began = asyncio.get_running_loop().time()
        with self._wakeup.listen(workload.id) as listener:
            while True:
                listener.clear()
                found = await self._db.read(lambda tx: tx.workloads.get(workload.id))
                if found is None or found.ended:
                    why = found.message if found else "it was deleted"
                    raise Conflict(f"The shell could not start: {why or 'it ended at once'}")
                if found.status == "running":
                    return found
                late = asyncio.get_running_loop().time() - began >= QUIET_SECONDS
                if late and said != (found.message or ""):
                    said = found.message or ""
                    await say(f"Waiting for the shell: {said or 'it is being started'}")
                await listener.change(QUIET_SECONDS)

    def end_later(self, workload: Workload) -> asyncio.Task[None]:
        return self._ending.start(self._end(workload))

    async def _end(self, workload: Workload) -> None:
        """End the workload, whatever its owner may by now. Every step can be repeated by the next server; deleting it
        is also what its `ttl` of 0 does."""
        owner = Caller(user=workload.user, proof=Proof.socket)
        try:
            await self._workloads.stop_for(owner, workload.id)
            if await self._has_ended(workload):
                await self._workloads.delete_for(owner, workload.id)
            else:
                await self._engine.stop(Run.of(workload), 0)
        except NotFound:
            return
        except (PenstockError, OSError) as error:
            log.warning("%s: the shell could not be ended: %s", workload.id, error)

    async def _has_ended(self, workload: Workload) -> bool:
        """Wait for its end; False: the server stops before."""
        with self._wakeup.listen(workload.id) as listener:
            while True:
                listener.clear()
                found = await self._db.read(lambda tx: tx.workloads.get(workload.id))
                if found is None or found.ended:
                    return True
                if self._wakeup.stopping:
                    return False
                await listener.change()


def _writable(volume: Volume, caller: Caller) -> bool:
    """Judge it as for a job that mounts the volume."""
    return not volume.read_only and may_write(caller.rights, volume.group)


def _name(volume: Volume) -> str:
    return f"shell-{volume.name}".replace(".", "-")[:NAME_LIMIT].rstrip("-")


def _word(workload: Workload) -> str:
    return "index" if workload.spec.array else "node"


def _part(workload: Workload, unit: Unit) -> int:
    return unit.index if workload.spec.array else unit.rank


def named_conflict(workload: Workload, part: int, error: Conflict) -> Conflict:
    """Return an engine's error with the name that people know the workload by."""
    which = f", {_word(workload)} {part}" if workload.spec.parts > 1 else ""
    return Conflict(f"{workload.name} ({workload.id}{which}): {error.message}", hint=error.hint)


def _not_running(workload: Workload) -> Conflict:
    why = f" ({workload.message})" if workload.message and not workload.ended else ""
    hint = f"penstock jobs logs {workload.id}" if workload.ended else f"penstock jobs status {workload.id}"
    return Conflict(f"{workload.name} ({workload.id}) is not running: {workload.status}{why}", hint=hint)


def _program(command: Sequence[str]) -> str:
    """Return a program without its arguments: secrets stand there, and the audit is kept for ever."""
    return shorten(command[0], 80) if command else "a shell"
