"""Writes a small database of the newest schema as SQL into released/, for the test that migrates up from it.

Run when a migration is added: python -m tests.store.release
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.store.database import Database
from penstock.store.schema import HEAD
from penstock.store.session import Store
from penstock.store.tokens import Token
from tests.postgresql import running_cluster
from tests.store.making import ACCOUNT, MOMENT, a_volume, a_workload, end

RELEASED = Path(__file__).parent / "released"

VOLUME = a_volume(id="avolumea")
RUNNING = a_workload("runs", id="arunning", volume_ids={"/data": VOLUME.id})
ENDED = a_workload("ended", id="anendeda", volume_ids={"/data": VOLUME.id})
UNIT = Unit(rank=0, state=State.EXITED, exit_code=0, ended_at=MOMENT)
TOKEN = Token(id="atokenaa", user="ann", uid=1000, runs_server=True, description="laptop", created_at=MOMENT)


def fill(tx: Store) -> None:
    """One of everything."""
    tx.volumes.add(VOLUME, ACCOUNT)
    for workload in (RUNNING, ENDED):
        tx.workloads.add(workload)
    tx.workloads.move(RUNNING, State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, "no CPU is free")
    end(tx, ENDED)
    tx.workloads.set_units(ENDED.id, [UNIT])
    tx.tokens.add(TOKEN, "hash")
    tx.submissions.put("ann", "key", "digest", "Workload", RUNNING.id)


async def _fill(url: str) -> None:
    async with await Database.open(url) as db:
        await db.write(fill)


def main() -> None:
    RELEASED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(_fill(f"sqlite:///{place}/penstock.db"))
        connection = sqlite3.connect(f"{place}/penstock.db")
        (RELEASED / f"{HEAD}.sqlite.sql").write_text("\n".join(connection.iterdump()) + "\n")
        connection.close()
    with running_cluster() as cluster:
        url = cluster.new_database()
        asyncio.run(_fill(url))
        (RELEASED / f"{HEAD}.postgresql.sql").write_text(cluster.dump(url, "--inserts"))


if __name__ == "__main__":
    main()
