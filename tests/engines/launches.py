"""Volumes and launches to try an engine with."""

from __future__ import annotations

import asyncio
import getpass
import os
import pwd
from datetime import UTC, datetime
from typing import Any

from penstock.domain.names import new_id
from penstock.domain.users import Account
from penstock.domain.volumes import AccessMode, Volume
from penstock.domain.workloads import Array, Spec
from penstock.engines.base import Advances, BoundMount, Engine, Launch, LogQuery, Presence, Report, Run

NOBODY = pwd.getpwnam("nobody")
STORAGE_CLASS = "standard"
"""One whose volumes several nodes can have; the tests of an engine that calls it otherwise say so here."""


def the_account() -> Account:
    """Who work runs as: ourselves, or what stands for root."""
    if os.geteuid() == 0:
        return Account(uid=NOBODY.pw_uid, gid=NOBODY.pw_gid, user=NOBODY.pw_name)
    return Account(uid=os.geteuid(), gid=os.getegid(), user=getpass.getuser())


def a_volume(name: str = "data", **fields: Any) -> Volume:
    given = {
        "id": new_id(),
        "group": "ann",
        "user": "ann",
        "size": "1Gi",
        "size_bytes": 2**30,
        "storage_class": STORAGE_CLASS,
        "access_modes": (AccessMode.ReadWriteMany,),
        "created_at": datetime.now(UTC).replace(microsecond=0),
    }
    return Volume(name=name, **(given | fields))


def a_launch(run: str | tuple[str, ...], mounts: dict[str, Volume] | None = None, **fields: Any) -> Launch:
    """A launch that runs the text, or the program; what belongs to the spec goes there."""
    spec = {key: fields.pop(key) for key in list(fields) if key in Spec.model_fields and key != "stop_grace"}
    if "account" not in fields:
        fields["account"] = the_account()
    given = {
        "workload_id": new_id(),
        "attempt": 1,
        "master_port": 29500,
        "stop_grace": 5,
        "user": "ada",
        "group": "ada",
    }
    bound = tuple(
        BoundMount(path=path, volume=volume, read_only=volume.read_only) for path, volume in (mounts or {}).items()
    )
    return Launch(name="try", spec=Spec(run=run, **spec), mounts=bound, **(given | fields))


def an_array(run: str, count: int, parallelism: int, mounts: dict[str, Volume] | None = None, **fields: Any) -> Launch:
    """A launch of an array with as many places as may run at once."""
    given = {"gpus": ((),) * parallelism, "indexes": tuple(range(count))} | fields
    return a_launch(run, mounts, array=Array(count=count, parallelism=parallelism), **given)


def run_of(launch: Launch) -> Run:
    return Run(launch.workload_id, launch.attempt)


async def observed(engine: Engine, run: Run) -> Report:
    """Look at a run and do what is due, as a server does until the end of it is in the records."""
    report = await engine.observe(run)
    if isinstance(engine, Advances) and report.presence not in (Presence.ended, Presence.lost):
        await engine.advance(run)
    return report


async def ended(engine: Engine, run: Run, patience: float = 60) -> Report:
    """Wait for the end, as a server does: by what the engine says has changed."""
    changes = engine.changes()
    look = asyncio.ensure_future(anext(changes))
    try:
        async with asyncio.timeout(patience):
            while (report := await observed(engine, run)).presence in (Presence.waiting, Presence.running):
                await look
                look = asyncio.ensure_future(anext(changes))
    finally:
        look.cancel()
    return report


async def log_of(engine: Engine, run: Run, rank: int = 0, **query: Any) -> bytes:
    return b"".join([data async for data in engine.logs(run, rank, LogQuery(**query))])


async def outcome(engine: Engine, launch: Launch) -> tuple[Report, str]:
    """Start it, wait for its end, and return how it ended and what its first node printed."""
    await engine.start(launch)
    report = await ended(engine, run_of(launch))
    return report, (await log_of(engine, run_of(launch))).decode(errors="replace")


async def printed(engine: Engine, run: Run, text: str, rank: int = 0) -> None:
    """Return once the node has printed the text."""
    seen = b""
    async with asyncio.timeout(60):
        async for data in engine.logs(run, rank, LogQuery(follow=True)):
            seen += data
            if text.encode() in seen:
                return
    raise AssertionError(f"{text!r} was never printed, only {seen!r}")
