"""A server to measure: in a fresh directory, with ended workloads stored as many as wanted, gone afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from penstock.domain.model import now
from penstock.domain.names import new_id
from penstock.domain.states import Reason, State
from penstock.domain.users import Account
from penstock.domain.workloads import Resources, Spec, Workload
from penstock.settings import Settings
from penstock.store.database import Database
from tests.running import RunningServer, processes_naming, start_server

BATCH = 5000


def program(name: str = "penstock") -> str:
    """The command as its user types it."""
    return str(Path(sys.executable).parent / name)


@contextmanager
def fresh_place() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="pb-", dir="/var/tmp"))  # on a disk: /tmp may be memory
    place.chmod(0o711)
    try:
        yield place
    finally:
        for pid in processes_naming(place):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(place)


@contextmanager
def running(*, stored: int = 0, **settings: str) -> Iterator[RunningServer]:
    """A server; what it still runs at the end is killed, not stopped: nobody will ask for it again."""
    with fresh_place() as place:
        if stored:
            store_workloads(place, stored)
        server = start_server(place, executed=True, **settings)
        try:
            yield server
        finally:
            server.kill()


def store_workloads(place: Path, count: int) -> None:
    ids: set[str] = set()
    while len(ids) < count:
        ids.add(new_id())  # of so many, two may be the same
    store(place, map(_ended, range(count), ids))


def store(place: Path, workloads: Iterable[Workload]) -> None:
    """Through the store's own repositories, as the server would have written them."""
    asyncio.run(_store(place / "data", iter(workloads)))


async def _store(data_dir: Path, workloads: Iterator[Workload]) -> None:
    data_dir.mkdir(mode=0o700, exist_ok=True)
    async with await Database.open(Settings(data_dir=data_dir).url) as database:
        while batch := list(islice(workloads, BATCH)):
            await database.write(lambda tx, batch=batch: [tx.workloads.add(workload) for workload in batch])


def _ended(number: int, id_: str) -> Workload:
    moment = now()
    user = pwd.getpwuid(os.getuid()).pw_name
    return Workload(
        id=id_,
        name=f"train-{number:06d}",
        group=user,
        user=user,
        account=Account(uid=65534, gid=65534, user="nobody"),
        spec=Spec(run="python train.py --epochs 100", resources=Resources(cpus_milli=4000, memory_bytes=8 << 30)),
        state=State.EXITED,
        reason=Reason.FINISHED,
        exit_code=0,
        created_at=moment,
        updated_at=moment,
        started_at=moment,
        ended_at=moment,
    )


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n".encode()


def post(path: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return head.encode() + b"\r\n\r\n" + data
