"""Logs outlive pods and servers: no line twice, none lost, and what is missing is said."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.domain.states import State
from penstock.domain.workloads import Array
from penstock.engines.base import LogQuery, Run
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.logs.files import KeptLog, prepare, read_position
from penstock.engines.kubernetes.logs.stream import NS, LogLine
from penstock.engines.shared.logstore import LogReader
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.observed import Observed, observed
from tests.engines.launches import a_launch
from tests.rig.cluster import Rig

LET_IT_OUT = "; sleep 1"
"""A runtime may drop the last of much output if its program ends with it."""
COUNTS = "for i in $(seq 1 {last}); do echo line $i; [ $((i % 50)) = 0 ] && sleep 0.05; done"


def counted(last: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(1, last + 1))


@pytest.fixture
async def seen(rig: Rig, namespace: str, tmp_path: Path) -> AsyncIterator[Observed]:
    async with observed(rig, namespace, tmp_path) as seen:
        yield seen


# on a cluster


async def test_a_follower_waits_for_the_start_and_ends_with_the_unit(seen: Observed) -> None:
    launch = a_launch("echo one; sleep 0.2; echo two")
    following = asyncio.create_task(seen.log(Run(launch.workload_id), follow=True))
    await asyncio.sleep(0)
    await seen.start(launch)
    assert await asyncio.wait_for(following, 60) == b"one\ntwo\n"


async def test_a_follower_sees_a_line_while_the_program_runs(seen: Observed) -> None:
    run = await seen.start(a_launch("echo first; sleep 600", stop_grace=1))
    async with asyncio.timeout(60):
        async for data in seen.logs.read(run, 0, LogQuery(follow=True)):
            assert data == b"first\n"
            break


async def test_bytes_that_are_not_text_and_long_lines_come_back_as_they_were(seen: Observed) -> None:
    script = r"printf '\xff\x00\xfe\n'; head -c 100000 /dev/zero | tr '\0' x; echo; printf 'no newline'"
    run = await seen.start(a_launch(script))
    await seen.ended(run)
    assert await seen.log(run) == b"\xff\x00\xfe\n" + b"x" * 100_000 + b"\nno newline"


async def test_tail_and_since_find_their_place(seen: Observed) -> None:
    run = await seen.start(a_launch("echo early; sleep 2.5; echo late; printf unfinished"))
    report = await seen.ended(run)
    assert report.units[0].ended_at
    half = report.units[0].ended_at - timedelta(seconds=1)
    assert await seen.log(run, tail=1) == b"unfinished"
    assert await seen.log(run, tail=2) == b"late\nunfinished"
    assert await seen.log(run, since=half) == b"late\nunfinished"
    assert await seen.log(run, since=half - timedelta(hours=1)) == b"early\nlate\nunfinished"
    assert await seen.log(run, since=half + timedelta(hours=1)) == b""


async def test_the_beginning_and_the_end_of_a_log_over_the_limit_are_kept(
    rig: Rig, namespace: str, tmp_path: Path
) -> None:
    async with observed(rig, namespace, tmp_path, log_limit="16Ki") as seen:
        run = await seen.start(a_launch("seq 1 20000" + LET_IT_OUT))
        await seen.ended(run)
        log = await seen.log(run)
    assert log.startswith(b"1\n2\n3\n")
    assert log.endswith(b"19999\n20000\n")
    assert b"\n[penstock] " in log
    assert b" bytes not kept: log_limit is 16Ki\n" in log
    assert len(log) < 20_000


async def test_each_index_has_a_log_of_its_own(seen: Observed) -> None:
    run = await seen.start(a_launch("echo I am $JOB_COMPLETION_INDEX", array=Array(count=12)))
    await seen.ended(run)
    assert [await seen.log(run, part) for part in range(12)] == [b"I am %d\n" % part for part in range(12)]


async def test_the_next_server_goes_on_where_the_last_one_stopped(rig: Rig, namespace: str, tmp_path: Path) -> None:
    async with observed(rig, namespace, tmp_path) as seen:
        run = await seen.start(a_launch(COUNTS.format(last=3000)))
        await seen.printed(run, b"line 200\n")
    async with observed(rig, namespace, tmp_path) as seen:
        await seen.printed(run, b"line 1000\n")
    async with observed(rig, namespace, tmp_path) as seen:
        assert (await seen.ended(run)).units[0].state is State.EXITED
        assert await seen.log(run) == counted(3000)


async def test_servers_that_are_killed_lose_nothing(rig: Rig, namespace: str, tmp_path: Path) -> None:
    async with observed(rig, namespace, tmp_path / "other") as seen:
        run = await seen.start(a_launch(COUNTS.format(last=6000)))
        await seen.running(run)
    for _ in range(4):
        await asyncio.to_thread(_keep_and_be_killed, rig, namespace, tmp_path, random.uniform(0.2, 1.5))
    async with observed(rig, namespace, tmp_path) as seen:
        await seen.ended(run)
        assert await seen.log(run) == counted(6000)


def _keep_and_be_killed(rig: Rig, namespace: str, place: Path, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.engines.kubernetes.keeping", str(place), namespace, rig.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout
        keeper.stdout.readline()
        try:
            keeper.wait(seconds)
        except subprocess.TimeoutExpired:
            keeper.kill()


async def test_a_pod_that_was_gone_before_all_was_read_is_said(rig: Rig, namespace: str, tmp_path: Path) -> None:
    async with observed(rig, namespace, tmp_path) as seen:
        run = await seen.start(a_launch("echo up; sleep 600", stop_grace=1))
        await seen.printed(run, b"up\n")
        name = seen.pod(run).name
    rig.kubectl("delete", "pod", name, "-n", namespace, "--grace-period=0", "--force")
    async with observed(rig, namespace, tmp_path) as seen:
        await seen.ended(run)
        assert await seen.log(run) == b"up\n[penstock] the pod was gone before its last output could be read\n"


async def test_what_the_node_threw_away_meanwhile_is_said(rig: Rig, namespace: str, tmp_path: Path) -> None:
    """A kubelet begins a new file when a log has 10 MiB, and shows only that."""
    script = "echo up; until [ -e /tmp/on ]; do if [ -e /tmp/go ]; then seq 1 1700000; rm /tmp/go; fi; sleep 0.1; done"
    script += "; echo after; sleep 1"
    async with observed(rig, namespace, tmp_path) as seen:
        run = await seen.start(a_launch(script))
        await seen.printed(run, b"up\n")
        pod = seen.pod(run)
    inside = ("exec", "-n", namespace, pod.name, "--", "sh", "-c")

    def print_much() -> None:
        rig.kubectl(*inside, "touch /tmp/go; while [ -e /tmp/go ]; do sleep 0.1; done")

    def is_all_thrown_away() -> bool:
        begins = rig.kubectl("logs", "-n", namespace, pod.name, "--limit-bytes=3")
        if begins not in ("", "up\n"):  # the new file was begun while it printed, and has the rest
            print_much()
        return not begins

    print_much()
    await eventually(is_all_thrown_away)
    rig.kubectl(*inside, "touch /tmp/on")
    async with observed(rig, namespace, tmp_path) as seen:
        await seen.ended(run)
        assert await seen.log(run) == (
            b"up\n[penstock] the node has begun a new log: what it printed before this may be missing\nafter\n"
        )


async def test_a_log_is_whole_before_the_end_is_reported(seen: Observed) -> None:
    run = await seen.start(a_launch("seq 1 50000" + LET_IT_OUT))
    await seen.ended(run)
    position = read_position(seen.records.run_dir(run), 0)
    assert position
    assert position.done
    assert (await seen.log(run)).endswith(b"49999\n50000\n")


async def test_those_who_follow_a_removed_run_are_let_go(seen: Observed) -> None:
    run = await seen.start(a_launch("echo up; sleep 600", stop_grace=1))
    await seen.printed(run, b"up\n")
    following = asyncio.create_task(seen.log(run, follow=True))
    await asyncio.sleep(0)
    job = seen.cluster.jobs_of(run)[0]
    await seen.api.delete(Job, job.name, job.namespace)
    await seen.remove(run)
    assert (await asyncio.wait_for(following, 60)).startswith(b"up\n")
    await eventually(lambda: not seen.cluster.pods_of(run))
    assert not seen.records.run_dir(run).exists()


# the file alone


def lines(*texts: str, first: int = 0) -> list[LogLine]:
    return [LogLine((first + number) * NS, f"{text}\n".encode()) for number, text in enumerate(texts)]


def a_log(place: Path, uid: str = "pod", *, there: bool = True, limit: int = 1 << 20) -> KeptLog:
    prepare(place, limit, "1Mi")
    log = KeptLog(place, 0, limit)
    log.resume(uid, there=there)
    return log


def had(log: KeptLog, found: list[LogLine]) -> None:
    for line in found:
        log.mark.begun(line.time)
        log.mark.had(line.data)
    log.take(found)


def content(place: Path) -> bytes:
    reader = LogReader(place, 0)
    reader.refresh()
    data, offset = b"", 0
    while (found := reader.read(offset))[0]:
        data, offset = data + found[0], found[1]
    return data


def test_what_was_written_after_the_position_is_cut_and_read_again(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    had(log, lines("one", "two"))
    log.write(b"thr", 3)  # killed here: the position does not know of it
    log.close()
    again = a_log(tmp_path)
    assert again.mark.times == (0, NS)
    had(again, lines("three", first=2))
    again.close()
    assert content(tmp_path) == b"one\ntwo\nthree\n"


def test_nothing_is_cut_when_the_pod_is_gone(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    had(log, lines("one"))
    log.write(b"two\n", 2)
    log.close()
    a_log(tmp_path, there=False).close()
    assert content(tmp_path) == b"one\ntwo\n"


def test_a_log_shorter_than_its_position_is_read_anew(tmp_path: Path) -> None:
    """The machine stopped before all was on its disk."""
    log = a_log(tmp_path)
    had(log, lines("one", "two", "three"))
    log.close()
    segment = next((tmp_path / "logs").glob("*.log"))
    os.truncate(segment, 5)
    again = a_log(tmp_path)
    assert again.mark.times == ()
    had(again, lines("one", "two", "three"))
    again.close()
    assert content(tmp_path) == b"one\ntwo\nthree\n"


def test_another_pod_of_the_same_unit_goes_on_in_the_same_log(tmp_path: Path) -> None:
    log = a_log(tmp_path, "first")
    had(log, lines("from the first"))
    log.close()
    again = a_log(tmp_path, "second")
    assert again.mark.times == ()
    had(again, lines("from the second"))
    again.close()
    assert content(tmp_path) == b"from the first\nfrom the second\n"


def test_it_goes_on_over_segments_that_were_dropped(tmp_path: Path) -> None:
    log = a_log(tmp_path, limit=8192)
    had(log, lines(*(f"{number:099d}" for number in range(200))))
    log.close()
    again = a_log(tmp_path, limit=8192)
    had(again, lines("last", first=200))
    again.close()
    found = content(tmp_path)
    assert found.startswith(b"0" * 99 + b"\n")
    assert found.endswith(b"%099d\nlast\n" % 199)
    assert found.count(b"bytes not kept") == 1


def test_a_sentence_of_ours_stands_on_a_line_of_its_own(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    had(log, [LogLine(0, b"unfinished")])
    log.close()
    again = a_log(tmp_path, there=False)
    again.say("something is missing")
    again.close()
    assert content(tmp_path) == b"unfinished\n[penstock] something is missing\n"


@pytest.mark.parametrize("garbage", [b"", b"{", b"\xff\xff", b'{"offset": "many"}'])
def test_a_position_that_cannot_be_read_is_none(tmp_path: Path, garbage: bytes) -> None:
    log = a_log(tmp_path)
    had(log, lines("one"))
    log.close()
    (tmp_path / "logs" / "rank-0.position").write_bytes(garbage)
    assert read_position(tmp_path, 0) is None
    again = a_log(tmp_path)
    had(again, lines("one"))
    again.close()
    assert content(tmp_path) == b"one\n"
