"""A workload whose Docker host does not answer: back into the queue if nobody was asked to start it, else in doubt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from penstock.domain.nodes import Host
from penstock.domain.policy import SHARED_GROUP
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Wants, Workload
from penstock.engines.docker.engine import DockerEngine
from penstock.errors import Unavailable
from penstock.services.reconcile.step import RunSteps
from penstock.services.workloads.uploads import Uploads
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store
from tests.hosts.lot import Hosts
from tests.store.making import a_workload, run_until

NOWHERE = Host(name="lab-1", group=SHARED_GROUP, address="unix:///nowhere/docker.sock")
Server = Callable[[], RunSteps]


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    db = await Database.open(f"sqlite:///{tmp_path}/penstock.db")
    yield db
    await db.close()


async def running(db: Database, tmp_path: Path, host: Host) -> AsyncIterator[Server]:
    settings = Settings(data_dir=tmp_path, engine="docker")
    engine = DockerEngine(settings)
    await engine.open()
    await engine.use_hosts([host])
    yield lambda: RunSteps(db, engine, Uploads(settings), 10, lambda workload_id, seconds: None)
    await engine.close()


@pytest.fixture
async def server(db: Database, tmp_path: Path) -> AsyncIterator[Server]:
    """A server that begins with the call; there is one host, which is off."""
    async for runs in running(db, tmp_path, NOWHERE):
        yield runs


@pytest.fixture
async def answering(db: Database, tmp_path: Path, hosts: Hosts) -> AsyncIterator[Server]:
    """Its host is a real one, on which nothing of ours is."""
    async for runs in running(db, tmp_path, NOWHERE.model_copy(update={"address": hosts.hosts[0].unix})):
        yield runs


async def placed(db: Database, *states: State) -> Workload:
    def write(tx: Store) -> Workload:
        workload = a_workload(hosts=("lab-1",))
        tx.workloads.add(workload)
        return run_until(tx, workload, State.ASSIGNED, *states)

    return await db.write(write)


async def test_what_was_placed_there_a_moment_ago_goes_back_into_the_queue(db: Database, server: Server) -> None:
    runs = server()
    after = await runs.advance(await placed(db))
    assert (after.state, after.reason, after.hosts) == (State.QUEUED, Reason.GIVEN_BACK, ())
    assert "Docker on lab-1 cannot be reached" in (after.message or "")


@pytest.mark.parametrize("states", [(), (State.LAUNCHING, State.REQUESTED_LAUNCH), (State.RUNNING,)])
async def test_what_a_server_before_may_have_started_is_in_doubt_and_keeps_its_place(
    db: Database, server: Server, states: tuple[State, ...]
) -> None:
    workload = await placed(db, *states)
    runs = server()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await runs.advance(workload)
    [found] = await db.read(lambda tx: tx.workloads.active())
    assert (found.state, found.reason, found.ended_at, found.hosts) == (
        State.UNKNOWN,
        Reason.NODE_LOST,
        None,
        ("lab-1",),
    )
    assert "it may be running there, and its node is asked again." in (found.message or "")
    assert (found.status, found.ended, found.placed) == ("unknown", False, True)
    history = await db.read(lambda tx: tx.workloads.history(workload.id))
    assert [line.state for line in history].count(State.UNKNOWN) == 1


NEVER_SEEN = "stopped; nothing of it is left, so whether it had run is not known"


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ((State.PULLING,), "stopped before it started"),
        ((State.LAUNCHING, State.REQUESTED_LAUNCH, State.UNKNOWN), NEVER_SEEN),
    ],
)
async def test_of_one_that_may_have_run_it_is_not_said_that_it_was_stopped_before(
    db: Database, answering: Server, states: tuple[State, ...], said: str
) -> None:
    workload = await placed(db, *states)
    asked = await db.write(
        lambda tx: tx.workloads.move(
            workload, State.REQUESTED_CANCEL, Reason.STOPPED_BY_USER, "by ann", wants=Wants.STOP
        )
    )
    after = await answering().advance(asked)
    assert (after.state, after.reason, after.message) == (State.STOPPED, Reason.STOPPED_BY_USER, said)
