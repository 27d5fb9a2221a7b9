"""A container's log, followed to its end on a real kubelet: no line twice, none lost."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.logs.stream import LogIncomplete, LogMark, follow_log
from tests.engines.kubernetes.making import becomes, eventually, has_ended, pod, started

COUNT = "i=0; while [ $i -lt {n} ]; do echo out $i; echo err $i >&2; i=$((i+1)); sleep 0.01; done"


def counted(n: int) -> list[bytes]:
    return sorted([b"out %d" % i for i in range(n)] + [b"err %d" % i for i in range(n)])


async def log_of(api: KubernetesApi, pod: Pod, mark: LogMark | None = None) -> bytes:
    async with asyncio.timeout(90):
        return b"".join([line.data async for line in follow_log(api, pod, "main", mark)])


async def test_every_byte_comes_as_it_was_printed_and_the_end_is_the_containers(api, namespace):
    """Also a line longer than the runtime's pieces (16 KiB), and a last one that is never ended."""
    script = (
        r"printf 'a\000b\377c\rz\n'; head -c 40000 /dev/zero | tr '\0' x; echo; echo; printf 'last, without newline'"
    )
    log = await log_of(api, await started(api, namespace, "bytes", script))
    assert log == b"a\x00b\xffc\rz\n" + b"x" * 40000 + b"\n\nlast, without newline"


async def test_the_log_of_a_container_that_ended_long_ago_is_whole(api, namespace):
    ended = await becomes(api, await started(api, namespace, "ended", COUNT.format(n=20)), has_ended)
    assert sorted((await log_of(api, ended)).splitlines()) == counted(20)


async def test_lines_come_while_the_program_runs(api, namespace):
    running = await started(api, namespace, "live", "echo first; while [ ! -e /go ]; do sleep 0.05; done; echo last")
    async with asyncio.timeout(60), aclosing(follow_log(api, running, "main")) as lines:
        assert (await anext(lines)).data == b"first\n"
        async with await api.exec("live", namespace, ["touch", "/go"]) as session:
            assert await session.exit_code() == 0
        assert [line.data async for line in lines] == [b"last\n"]


async def test_a_connection_that_breaks_again_and_again_costs_no_line(shaky, proxy, namespace):
    running = await started(shaky, namespace, "broken", COUNT.format(n=300))
    had = b""
    async with asyncio.timeout(90), aclosing(follow_log(shaky, running, "main")) as pieces:
        async for piece in pieces:
            had += piece.data
            if had.count(b"\n") % 100 == 0:
                proxy.cut()
    assert sorted(had.splitlines()) == counted(300)
    assert sum("follow=true" in line for line in proxy.requests) > 5


async def test_a_server_that_was_away_goes_on_at_its_mark(api, namespace):
    """What a new process needs to know fits in a few numbers."""
    running = await started(api, namespace, "resumed", COUNT.format(n=100))
    had, known = b"", ((), 0)
    for stop in (1, 50, 51, 120, 10**6):
        mark = LogMark(*known)
        async with asyncio.timeout(60), aclosing(follow_log(api, running, "main", mark)) as pieces:
            async for piece in pieces:
                had += piece.data
                if had.count(b"\n") == stop:
                    break
        known = (mark.times, mark.part)
    assert sorted(had.splitlines()) == counted(100)


async def test_a_container_that_has_not_started_yet_is_waited_for(api, namespace):
    body = pod("gated", "echo here")
    body["spec"]["schedulingGates"] = [{"name": "not/yet"}]
    waiting = await api.create(Pod, body, namespace)
    following = asyncio.create_task(log_of(api, waiting))
    await api.patch(Pod, "gated", {"spec": {"schedulingGates": None}}, namespace)
    assert await following == b"here\n"


async def test_a_container_that_never_ran_has_an_empty_log(api, namespace):
    body = pod("never", "echo here", activeDeadlineSeconds=1)
    body["spec"]["containers"][0]["image"] = "docker.io/library/there-is-none:1"
    failed = await becomes(api, await api.create(Pod, body, namespace), has_ended)
    assert await log_of(api, failed) == b""


async def test_a_pod_that_is_deleted_ends_its_log(api, namespace):
    running = await started(api, namespace, "deleted", "echo here; exec sleep 1000")
    async with asyncio.timeout(60), aclosing(follow_log(api, running, "main")) as lines:
        assert (await anext(lines)).data == b"here\n"
        await api.delete(Pod, "deleted", namespace, grace=0)
        assert [line.data async for line in lines] == []


async def test_a_log_whose_end_could_not_be_had_is_said_to_be_lost(shaky, proxy, api, namespace):
    running = await started(api, namespace, "lost", "echo here; exec sleep 1000")
    async with asyncio.timeout(60), aclosing(follow_log(shaky, running, "main")) as lines:
        assert (await anext(lines)).data == b"here\n"
        await proxy.down()
        await api.delete(Pod, "lost", namespace, grace=0)
        more = asyncio.ensure_future(anext(lines))
        await eventually(lambda: shaky.trouble)
        await proxy.up()
        with pytest.raises(LogIncomplete, match="was deleted before the end of its log was read"):
            await more


async def test_another_pod_of_the_same_name_is_not_taken_for_it(api, namespace):
    first = await started(api, namespace, "same", "echo first")
    await becomes(api, first, has_ended)
    assert await log_of(api, first) == b"first\n"

    async def another() -> Pod:
        return Pod(first.metadata.__class__(name="same", namespace=namespace, uid="another"))

    running = await started(api, namespace, "same2", "echo one; exec sleep 1000")
    async with asyncio.timeout(60), aclosing(follow_log(api, running, "main", look=another)) as lines:
        assert (await anext(lines)).data == b"one\n"
        await api.delete(Pod, "same2", namespace, grace=0)
        assert [line async for line in lines] == []


@pytest.mark.timeout(300)
async def test_a_kubelet_that_is_killed_and_comes_back_costs_no_line(own_rig):
    """The answer then ends as if the container had."""
    api = KubernetesApi.open(own_rig.kubeconfig)
    running = await started(api, "default", "patient", COUNT.format(n=500))
    kubelet = f"kubelet-{own_rig.node_names.index(running.spec.node_name) + 1}"
    had, killed = b"", False
    async with asyncio.timeout(200), aclosing(follow_log(api, running, "main")) as pieces:
        async for piece in pieces:
            had += piece.data
            if not killed and had.count(b"\n") > 100:
                own_rig.stop(kubelet)
                own_rig.start(kubelet)
                killed = True
    assert sorted(had.splitlines()) == counted(500)
    await api.close()
