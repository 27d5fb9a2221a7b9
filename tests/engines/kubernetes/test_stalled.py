"""Containers that never take what they are sent keep nobody else from theirs, and are sent it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engines.kubernetes import workdir
from penstock.engines.shared.minder import MARKS
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.opening import opened
from tests.engines.kubernetes.test_workdir import archive
from tests.engines.launches import a_launch, ended, log_of, run_of

STALLS = "[[ $STALLS ]] && printf 'go\\n' && exec sleep 600\n"
STALLS_ONCE = f"[[ -e {MARKS}/tried ]] || {{ : >{MARKS}/tried; printf 'go\\n'; exec sleep 600; }}\n"


async def test_who_never_takes_it_has_a_share_of_the_senders_and_no_more(
    account: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workdir, "AT_ONCE", 2)
    monkeypatch.setattr(workdir, "EACH", 1)
    monkeypatch.setattr(workdir, "RECEIVE", STALLS + workdir.RECEIVE)
    sent = archive(tmp_path, main=b"echo sent")
    async with opened(account.settings(tmp_path)) as engine:
        for _ in range(2):
            stalling = a_launch(
                ". main", workdir=".", workdir_archive=sent, envs={"STALLS": "1"}, user="eve", stop_grace=1
            )
            await engine.start(stalling)
            async for _ in engine.changes():
                if any(unit.started_at for unit in (await engine.observe(run_of(stalling))).units):
                    break
        launch = a_launch(". main", workdir=".", workdir_archive=sent)
        await engine.start(launch)
        await ended(engine, run_of(launch))
        assert await log_of(engine, run_of(launch)) == b"sent\n"


async def test_what_a_container_did_not_take_in_time_is_sent_again(
    account: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workdir, "SECONDS", 3.0)
    monkeypatch.setattr(workdir, "RECEIVE", STALLS_ONCE + workdir.RECEIVE)
    async with opened(account.settings(tmp_path)) as engine:
        launch = a_launch(". main", workdir=".", workdir_archive=archive(tmp_path, main=b"echo sent"))
        await engine.start(launch)
        await ended(engine, run_of(launch))
        assert await log_of(engine, run_of(launch)) == b"sent\n"
