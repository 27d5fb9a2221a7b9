"""What every engine must do with scratch and with limits on the disk. An engine's tests inherit this class and give it
an `engine`."""

from __future__ import annotations

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Medium, Resources, Scratch
from penstock.engines.base import Engine, Launch, Report
from tests.engines.launches import a_launch, a_volume, ended, log_of, outcome, run_of, the_account

MEBIBYTE = 1 << 20
LIMITED = Resources(memory_bytes=128 * MEBIBYTE)
SIZE = "df -P -k {path} | tail -n 1 | while read -r _ size _ _ _ where; do echo $size $where; done"
"""Kibibytes of the file system at a path, and where it is mounted."""
PATIENCE = 100
"""Seconds in which an engine that looks at the disk every ten has seen it."""


class ScratchContract:
    looks_every = 10
    """Seconds between two looks at the disk; an engine's tests may have it look more often."""

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    @pytest.mark.parametrize("medium", Medium)
    @pytest.mark.parametrize("path", ["/scratch", "/deep/in/side", "/tmp", "/dev/shm"])
    async def test_scratch_is_a_file_system_at_any_path(self, engine: Engine, path: str, medium: Medium) -> None:
        scratch = Scratch(path=path, medium=medium, size_bytes=32 * MEBIBYTE)
        run = f"ls -A {path}; echo kept >{path}/file; cat {path}/file; {SIZE.format(path=path)}"
        report, log = await outcome(engine, a_launch(run, scratch=(scratch,), resources=LIMITED))
        assert report.units[0].state is State.EXITED, log
        first, size, where = log.split()
        assert (first, where) == ("kept", path)
        assert medium is Medium.disk or size == "32768"

    async def test_in_memory_it_takes_its_size_and_no_more(self, engine: Engine) -> None:
        scratch = Scratch(path="/ram", medium=Medium.memory, size_bytes=8 * MEBIBYTE)
        run = "dd if=/dev/zero of=/ram/file bs=1M count=16 2>&1; echo code $?; wc -c </ram/file; echo small >/tmp/file"
        report, log = await outcome(engine, a_launch(run, scratch=(scratch,), resources=LIMITED))
        assert report.units[0].state is State.EXITED
        assert "No space left on device" in log
        assert log.endswith(f"code 1\n{8 * MEBIBYTE}\n")

    async def test_in_memory_without_a_size_it_is_as_large_as_the_memory_limit(self, engine: Engine) -> None:
        scratch = Scratch(path="/ram", medium=Medium.memory)
        _, log = await outcome(engine, a_launch(SIZE.format(path="/ram"), scratch=(scratch,), resources=LIMITED))
        assert log == "131072 /ram\n"

    async def test_shared_memory_is_half_the_memory_limit(self, engine: Engine) -> None:
        run = f"{SIZE.format(path='/dev/shm')}; echo x >/dev/shm/file && cat /dev/shm/file"
        _, log = await outcome(engine, a_launch(run, resources=LIMITED))
        assert log == "65536 /dev/shm\nx\n"

    async def test_shared_memory_is_what_was_asked_for(self, engine: Engine) -> None:
        scratch = Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=16 * MEBIBYTE)
        _, log = await outcome(engine, a_launch(SIZE.format(path="/dev/shm"), scratch=(scratch,), resources=LIMITED))
        assert log == "16384 /dev/shm\n"

    async def test_the_next_run_finds_the_files_of_a_volume_but_not_those_of_scratch(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        places = tuple(Scratch(path=f"/{medium}", medium=medium, size_bytes=8 * MEBIBYTE) for medium in Medium)
        run = "for place in /data /disk /memory; do ls $place; echo was here >$place/file; done"
        for expected in ("", "file\n"):
            _, log = await outcome(engine, a_launch(run, {"/data": volume}, scratch=places, resources=LIMITED))
            assert log == expected

    async def test_each_node_has_scratch_of_its_own(self, engine: Engine) -> None:
        launch = a_launch("ls /scratch; touch /scratch/$NODE_RANK; sleep 0.5; ls /scratch", scratch=SCRATCH, nodes=2)
        await engine.start(launch)
        await ended(engine, run_of(launch))
        assert [await log_of(engine, run_of(launch), rank) for rank in (0, 1)] == [b"0\n", b"1\n"]

    # -- over the limit -----------------------------------------------------------------------------------------

    async def test_scratch_on_disk_over_its_size_ends_the_work_with_the_reason(self, engine: Engine) -> None:
        unit = (await _over_its_limit(engine, a_launch(_fill("/scratch"), scratch=SCRATCH))).units[0]
        assert (unit.state, unit.reason) == (State.CRASHED, Reason.DISK_LIMIT)
        assert unit.exit_code != 0
        assert "/scratch" in (unit.message or "")
        assert "4Mi" in (unit.message or "")

    @pytest.mark.parametrize("path", ["/tmp", "/scratch"])
    async def test_over_its_disk_size_it_ends_with_the_reason(self, engine: Engine, path: str) -> None:
        scratch = (Scratch(path="/scratch"),)
        launch = a_launch(_fill(path), scratch=scratch, resources=Resources(disk_bytes=8 * MEBIBYTE))
        unit = (await _over_its_limit(engine, launch)).units[0]
        assert (unit.state, unit.reason) == (State.CRASHED, Reason.DISK_LIMIT)
        assert "8Mi" in (unit.message or "")

    async def test_what_is_in_a_volume_does_not_count(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        run = f"dd if=/dev/zero of=/data/file bs=1M count=12 2>/dev/null; sleep {self.looks_every + 2}"
        asked = Resources(disk_bytes=8 * MEBIBYTE)
        report, _ = await outcome(engine, a_launch(run, {"/data": volume}, scratch=SCRATCH, resources=asked))
        assert report.units[0].state is State.EXITED


SCRATCH = (Scratch(path="/scratch", size_bytes=4 * MEBIBYTE),)


def _fill(path: str) -> str:
    return f"dd if=/dev/zero of={path}/file bs=1M count=12 2>/dev/null; sleep 600"


async def _over_its_limit(engine: Engine, launch: Launch) -> Report:
    await engine.start(launch)
    return await ended(engine, run_of(launch), PATIENCE)
