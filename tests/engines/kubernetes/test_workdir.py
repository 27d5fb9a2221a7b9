"""The user's own code, on its way into containers."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.kubernetes import workdir
from penstock.engines.kubernetes.engine import KubernetesEngine
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.opening import opened
from tests.engines.launches import a_launch, ended, log_of, outcome, run_of


def archive(place: Path, **files: bytes) -> Path:
    path = place / "code.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/"))
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return path


async def test_the_code_is_there_before_the_first_line_runs(engine: KubernetesEngine, tmp_path: Path) -> None:
    sent = archive(tmp_path, main=b"#!/bin/bash\necho from $PWD\n", deep__data=os.urandom(5_000_000))
    report, log = await outcome(
        engine, a_launch("./main; wc -c <deep/data; ls -A", workdir="code", workdir_archive=sent)
    )
    assert report.units[0].state is State.EXITED
    assert log == "from /workdir\n5000000\ndeep\nmain\n"


async def test_every_node_gets_it_and_a_program_too(engine: KubernetesEngine, tmp_path: Path) -> None:
    sent = archive(tmp_path, main=b"#!/bin/bash\necho node $NODE_RANK\n")
    launch = a_launch(("./main",), workdir=".", workdir_archive=sent, nodes=2)
    await engine.start(launch)
    await ended(engine, run_of(launch))
    assert [await log_of(engine, run_of(launch), rank) for rank in (0, 1)] == [b"node 0\n", b"node 1\n"]


async def test_a_server_that_starts_anew_sends_what_the_last_one_did_not(
    account: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive the user sent may be gone by then."""
    sent = archive(tmp_path, main=b"echo sent")
    launch = a_launch(". main", workdir=".", workdir_archive=sent)

    async def never(*_: object) -> bool:
        return False

    with monkeypatch.context() as context:
        context.setattr(workdir.WorkdirSender, "_send", never)
        first = KubernetesEngine(account.settings(tmp_path))
        await first.open()
        await first.start(launch)
        async for _ in first.changes():
            if any(unit.started_at for unit in (await first.observe(run_of(launch))).units):
                break
        await first.close()
    sent.unlink()
    async with opened(account.settings(tmp_path)) as second:
        await ended(second, run_of(launch))
        assert await log_of(second, run_of(launch)) == b"sent\n"
        await second.settle(run_of(launch), 60)
        assert list((tmp_path / "kubernetes" / "workdirs").iterdir()) == []


async def test_what_cannot_be_unpacked_is_said(engine: KubernetesEngine, tmp_path: Path) -> None:
    broken = tmp_path / "code.tar.gz"
    broken.write_bytes(b"this is no archive")
    report, log = await outcome(engine, a_launch("echo ran", workdir=".", workdir_archive=broken))
    assert report.units[0].reason is Reason.LAUNCH_FAILED
    assert log.startswith("[penstock] The workdir could not be unpacked: ")
    assert "ran" not in log
