"""Programs in a running container, over a real API server and kubelet."""

from __future__ import annotations

import asyncio
import os

import pytest

from penstock import errors
from penstock.engines.base import Terminal
from penstock.engines.kubernetes.api import streams
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesNotFound, KubernetesUnreachable
from penstock.engines.kubernetes.api.streams import STDERR, STDOUT, ExecFailed
from tests.engines.kubernetes.making import IMAGE, becomes, eventually, has_ended, started


@pytest.fixture(scope="module")
def box(rig, namespace):
    """A container to run programs in."""
    arguments = ("box", f"--image={IMAGE}", "--restart=Never", "--command", "--", "sleep", "3600")
    rig.kubectl("run", "-n", namespace, *arguments)
    rig.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/box", "--timeout=60s")
    return "box"


async def output(session) -> tuple[bytes, bytes, int]:
    printed = {STDOUT: b"", STDERR: b""}
    async for channel, data in session:
        printed[channel] += data
    return printed[STDOUT], printed[STDERR], await session.exit_code()


async def test_both_outputs_and_the_exit_code_come_back(api, namespace, box):
    async with await api.exec(box, namespace, ["sh", "-c", "echo out; echo err >&2; exit 7"]) as session:
        assert await output(session) == (b"out\n", b"err\n", 7)


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 255", 255), ("kill -9 $$", 137)])
async def test_the_exit_code_is_that_of_the_program(api, namespace, box, script, code):
    async with await api.exec(box, namespace, ["sh", "-c", script]) as session:
        assert await session.exit_code() == code


async def test_every_byte_goes_both_ways_and_the_program_sees_the_end_of_its_input(api, namespace, box):
    sent = bytes(range(256)) * 4096
    async with await api.exec(box, namespace, ["cat"], stdin=True) as session:

        async def feed() -> None:
            await session.send(sent)
            await session.close_input()

        feeding = asyncio.create_task(feed())
        assert await output(session) == (sent, b"", 0)
        await feeding


async def test_random_bytes_arrive_as_they_were_sent(api, namespace, box):
    sent = os.urandom(1 << 20)
    path = "/random"
    # containerd closes a program's input as soon as the program has closed its output: the shell keeps it open.
    async with await api.exec(box, namespace, ["sh", "-c", f"cat > {path}; true"], stdin=True) as session:
        await session.send(sent)
        await session.close_input()
        assert await session.exit_code() == 0
    async with await api.exec(box, namespace, ["cat", path]) as session:
        assert await output(session) == (sent, b"", 0)


async def test_arguments_are_not_read_by_a_shell(api, namespace, box):
    async with await api.exec(box, namespace, ["printf", "%s|", "a b", "$HOME", "", "ü&=;"]) as session:
        assert (await output(session))[0] == "a b|$HOME||ü&=;|".encode()


async def test_a_terminal_has_the_size_it_is_given(api, namespace, box):
    script = ["sh", "-c", "while true; do stty size; sleep 0.05; done"]
    async with await api.exec(box, namespace, script, tty=True, stdin=True) as session:

        async def until(size: bytes) -> None:
            printed = b""
            async for channel, data in session:
                assert channel == STDOUT
                printed += data
                if size in printed:
                    return

        async with asyncio.timeout(60):
            await session.resize(Terminal(columns=133, rows=37))
            await until(b"37 133\r\n")
            await session.resize(Terminal(columns=80, rows=24))
            await until(b"24 80\r\n")


async def test_a_program_that_does_not_want_its_input_still_tells_how_it_ended(api, namespace, box):
    async with await api.exec(box, namespace, ["sh", "-c", "read x; echo $x; exit 4"], stdin=True) as session:
        await session.send(b"first\n" + b"more" * 10_000)  # what fits in a pipe: with more, kubectl hangs as well
        await session.close_input()
        assert await output(session) == (b"first\n", b"", 4)


async def test_control_c_reaches_what_runs_in_the_terminal(api, namespace, box):
    script = "trap 'echo caught; exit 9' INT; echo ready; while true; do sleep 0.1; done"
    async with await api.exec(box, namespace, ["sh", "-c", script], tty=True, stdin=True) as session:
        printed = b""
        async for _, data in session:
            printed += data
            if b"ready" in printed:
                await session.send(b"\x03")
                break
        assert b"caught" in (await output(session))[0]
        assert await session.exit_code() == 9


async def test_a_slow_reader_slows_the_program_and_loses_nothing(api, namespace, box):
    async with await api.exec(box, namespace, ["sh", "-c", "seq 1 200000"]) as session:
        total = 0
        async for _, data in session:
            total += data.count(b"\n")
            await asyncio.sleep(0.001)
        assert (total, await session.exit_code()) == (200000, 0)


async def test_input_after_the_end_is_nothing(api, namespace, box):
    async with await api.exec(box, namespace, ["true"], stdin=True) as session:
        assert await session.exit_code() == 0
        await session.send(b"too late")
        await session.close_input()
        await session.resize(Terminal(columns=80, rows=24))


@pytest.mark.parametrize(
    ("command", "said", "code"),
    [
        (["no-such-program"], '"no-such-program": executable file not found', 127),
        (["/etc/passwd"], "permission denied", 126),
    ],
)
async def test_a_program_that_cannot_be_run_is_said_in_a_sentence(api, namespace, box, command, said, code):
    async with await api.exec(box, namespace, command) as session:
        with pytest.raises(ExecFailed) as failed:
            await session.exit_code()
    assert said in failed.value.message
    assert "Internal error" not in failed.value.message
    assert failed.value.exit_code == code
    assert isinstance(failed.value.shown(), errors.Conflict)


async def test_a_pod_or_container_that_is_not_there_is_refused_at_once(api, namespace, box):
    with pytest.raises(KubernetesNotFound, match='pods "nobody" not found'):
        await api.exec("nobody", namespace, ["true"])
    with pytest.raises(KubernetesError, match="container other is not valid for pod box"):
        await api.exec(box, namespace, ["true"], container="other")


async def test_a_container_that_has_ended_is_refused_in_a_sentence(api, namespace):
    await becomes(api, await started(api, namespace, "ended", "true"), has_ended)
    async with await api.exec("ended", namespace, ["true"]) as session:
        with pytest.raises(ExecFailed) as failed:
            await session.exit_code()
    assert failed.value.message == 'container not found ("main")'


async def test_a_connection_that_breaks_is_no_exit_code(shaky, proxy, namespace, box):
    async with await shaky.exec(box, namespace, ["sh", "-c", "echo on; sleep 1000"], stdin=True) as session:
        assert await anext(session) == (STDOUT, b"on\n")
        proxy.cut()
        with pytest.raises(KubernetesUnreachable, match="broke"):
            await session.exit_code()
        await session.send(b"nobody")


async def test_a_quiet_session_is_kept_alive(api, namespace, box, monkeypatch):
    monkeypatch.setattr(streams, "PING_SECONDS", 0.1)
    monkeypatch.setattr(streams, "SILENCE_SECONDS", 1.0)
    async with await api.exec(box, namespace, ["sh", "-c", "sleep 3; echo still here"]) as session:
        assert await output(session) == (b"still here\n", b"", 0)


async def test_a_server_that_shows_no_sign_of_life_is_given_up(shaky, proxy, namespace, box, monkeypatch):
    monkeypatch.setattr(streams, "SILENCE_SECONDS", 0.5)
    async with await shaky.exec(box, namespace, ["sleep", "1000"]) as session:
        with pytest.raises(KubernetesUnreachable, match="no sign of life"):
            await session.exit_code()


async def test_closing_a_session_closes_its_connection(shaky, proxy, namespace, box):
    session = await shaky.exec(box, namespace, ["sleep", "1000"])
    assert proxy.open
    await session.close()
    await session.close()
    await eventually(lambda: not proxy.open)
