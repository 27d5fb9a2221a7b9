"""The queue follows what is written about people, also what is written while it looks."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.domain.states import State
from penstock.domain.users import Group, Limits, Membership, User
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Unavailable
from penstock.server.parts import Parts
from penstock.services.scheduler import queue
from penstock.settings import Settings
from penstock.store.database import Database
from tests.services.scheduling import ADMIN, ANN, submit, until


async def a_lab(place: Path) -> Parts:
    """With a group that may run nothing."""
    settings = Settings(data_dir=place / "data", sandbox="none" if os.geteuid() else "bubblewrap")
    settings.data_dir.mkdir(mode=0o711)
    parts = Parts(settings, await Database.open(f"sqlite:///{place}/penstock.db"), LocalEngine(settings), None)
    await parts.open()
    await parts.people.begin(ADMIN, "root")
    admin = parts.people.known(ADMIN)
    await parts.people.put_group(admin, Group(name="ann", limits=Limits(workloads=1)))
    await parts.people.put_user(admin, User(name="ann", groups=(Membership(name="ann", policy="pwm.all"),)))
    return parts


async def test_a_limit_that_is_raised_while_another_change_is_read_is_not_missed(place, monkeypatch):
    parts = await a_lab(place)
    try:
        ann, admin = parts.people.known(ANN), parts.people.known(ADMIN)
        blocker = await submit(parts, "run: sleep 300\n", ann)
        waits = await submit(parts, "run: sleep 300\n", ann)
        await until(parts, waits.id, lambda workload: workload.state is State.DENIED)
        read, reads = parts.db.read, []

        async def slow(function):
            """The database is away at first; and while it answers, an admin raises the limit."""
            if function is not queue._waiting:
                return await read(function)
            reads.append(function)
            if len(reads) == 1:
                raise Unavailable("The database does not answer.")
            found = await read(function)
            if len(reads) == 2:
                await parts.people.put_group(admin, Group(name="ann", limits=Limits(workloads=2)))
            return found

        monkeypatch.setattr(parts.db, "read", slow)
        await parts.people.put_group(admin, Group(name="other"))
        await until(parts, waits.id, lambda workload: workload.state is State.RUNNING)
        monkeypatch.undo()
        for each in (blocker, waits):
            await parts.workloads.stop(ann, each.id)
            await until(parts, each.id, lambda workload: workload.ended)
    finally:
        await parts.close()
