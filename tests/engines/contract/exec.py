"""What `exec` does on every engine. An engine's tests inherit this class and give it an `engine`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.engines.base import Engine, Launch, Run, Session, Terminal
from penstock.errors import Conflict
from penstock.services.workloads.sessions import SHELL
from tests.engines.launches import a_launch, ended, printed, run_of

WAITS = "echo up; sleep 600"
SECONDS = 60


@asynccontextmanager
async def running(engine: Engine, run: str = WAITS, **fields: Any) -> AsyncIterator[Launch]:
    """A run that has printed `up` on each node, and is stopped in the end."""
    launch = a_launch(run, **fields)
    await engine.start(launch)
    try:
        for part in range(launch.spec.parts):
            await printed(engine, run_of(launch), "up", part)
        yield launch
    finally:
        await engine.stop(run_of(launch), 0)
        await ended(engine, run_of(launch))


@asynccontextmanager
async def session(
    engine: Engine, run: Run, command: Sequence[str], part: int = 0, terminal: Terminal | None = None
) -> AsyncIterator[Session]:
    async with asyncio.timeout(SECONDS):
        opened = await engine.exec(run, part, command, terminal)
        try:
            yield opened
        finally:
            await opened.close()


async def result(opened: Session) -> tuple[int, bytes, bytes]:
    """The exit code, what was printed and what was complained."""
    out = {1: b"", 2: b""}
    async for channel, data in opened.output():
        out[channel] += data
    return await opened.exit_code(), out[1], out[2]


async def told(engine: Engine, run: Run, script: str, part: int = 0) -> tuple[int, str, str]:
    async with session(engine, run, ["sh", "-c", script], part) as opened:
        code, out, errors = await result(opened)
    return code, out.decode(), errors.decode()


async def shown(opened: Session, text: str) -> str:
    """What a terminal shows up to this text."""
    seen = ""
    async for _, data in opened.output():
        seen += data.decode(errors="replace")
        if text in seen:
            return seen
    raise AssertionError(f"{text!r} was never shown, only {seen!r}")


class Executing:
    workdir = "/made/here"
    """One that the engine can make."""
    at_once = 50

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    async def test_a_program_started_inside_ends_with_its_own_code(self, engine: Engine) -> None:
        async with running(engine) as launch:
            assert await told(engine, run_of(launch), "exit 0") == (0, "", "")
            assert await told(engine, run_of(launch), "exit 7") == (7, "", "")
            assert (await told(engine, run_of(launch), "kill -KILL $$"))[0] == 137

    async def test_it_sees_what_the_job_sees(self, engine: Engine) -> None:
        async with running(engine, envs={"GREETING": "hello 'you'"}, workdir=self.workdir) as launch:
            script = 'echo "$GREETING"; echo "$NODE_RANK of $NUM_NODES"; pwd'
            out = f"hello 'you'\n0 of 1\n{self.workdir}\n"
            assert await told(engine, run_of(launch), script) == (0, out, "")

    async def test_bytes_go_in_and_come_out_as_they_are(self, engine: Engine) -> None:
        everything = bytes(range(256)) * 4096
        async with running(engine) as launch, session(engine, run_of(launch), ["cat"]) as opened:

            async def feed() -> None:
                for start in range(0, len(everything), 50_000):
                    await opened.send(everything[start : start + 50_000])
                await opened.end_input()

            feeding = asyncio.create_task(feed())
            assert await result(opened) == (0, everything, b"")
            await feeding

    async def test_what_is_printed_and_what_is_complained_stay_apart(self, engine: Engine) -> None:
        async with running(engine) as launch:
            script = "echo out; echo err >&2; printf 'no newline'"
            assert await told(engine, run_of(launch), script) == (0, "out\nno newline", "err\n")

    async def test_the_end_of_the_input_is_passed_on(self, engine: Engine) -> None:
        async with running(engine) as launch, session(engine, run_of(launch), ["cat"]) as opened:
            await opened.end_input()
            assert await result(opened) == (0, b"", b"")

    async def test_a_terminal_has_a_size_that_can_change(self, engine: Engine) -> None:
        """The program waits for the new size itself: on Kubernetes what is typed may overtake it."""
        changed = "while test \"$(stty size)\" = '31 101'; do sleep 0.05; done"
        script = f"test -t 0 && test -t 1 && test -t 2 && stty size; {changed}; stty size; exit 5"
        size = Terminal(columns=101, rows=31)
        async with (
            running(engine) as launch,
            session(engine, run_of(launch), ["sh", "-c", script], terminal=size) as opened,
        ):
            assert "31 101" in await shown(opened, "31 101")
            await opened.resize(Terminal(columns=77, rows=22))
            code, out, _ = await result(opened)
            assert (code, out.split()) == (5, [b"22", b"77"])

    async def test_a_shell_shows_the_letters_that_are_typed(self, engine: Engine) -> None:
        async with (
            running(engine) as launch,
            session(engine, run_of(launch), SHELL, terminal=Terminal(columns=80, rows=24)) as opened,
        ):
            await opened.send(b"PS1=go''on:\n")
            await shown(opened, "goon:")
            await opened.send("echo f\u00fcr".encode())
            await shown(opened, "echo f\u00fcr")

    async def test_a_shell_leaves_the_language_that_a_job_has_chosen(self, engine: Engine) -> None:
        async with running(engine, envs={"LANG": "C"}) as launch, session(engine, run_of(launch), SHELL) as opened:
            await opened.send(b"echo $LANG\n")
            await opened.end_input()
            assert await result(opened) == (0, b"C\n", b"")

    async def test_ctrl_c_reaches_the_program_on_a_terminal(self, engine: Engine) -> None:
        script = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done"
        size = Terminal(columns=80, rows=24)
        async with (
            running(engine) as launch,
            session(engine, run_of(launch), ["sh", "-c", script], terminal=size) as opened,
        ):
            await shown(opened, "ready")
            await opened.send(b"\x03")
            code, out, _ = await result(opened)
            assert code == 9
            assert b"interrupted" in out

    async def test_closing_a_terminal_ends_what_ran_on_it(self, engine: Engine) -> None:
        size = Terminal(columns=80, rows=24)
        command = ["sh", "-c", "echo ready; sleep 98765"]
        async with running(engine) as launch:
            async with session(engine, run_of(launch), command, terminal=size) as opened:
                await shown(opened, "ready")
            await self.gone(engine, run_of(launch), "sleep 98765")

    async def test_one_node_of_several_can_be_entered(self, engine: Engine) -> None:
        async with running(engine, nodes=2) as launch:
            script = "echo $NODE_RANK of $NUM_NODES"
            assert await told(engine, run_of(launch), script, part=1) == (0, "1 of 2\n", "")
            assert await told(engine, run_of(launch), script, part=0) == (0, "0 of 2\n", "")

    async def test_what_does_not_run_cannot_be_entered(self, engine: Engine) -> None:
        with pytest.raises(Conflict):
            await engine.exec(Run("nosuchid"), 0, ["true"], None)
        async with running(engine) as launch:
            pass
        with pytest.raises(Conflict):
            await engine.exec(run_of(launch), 0, ["true"], None)

    async def test_many_at_once(self, engine: Engine) -> None:
        async with running(engine) as launch:

            async def one(number: int) -> tuple[int, str, str]:
                return await told(engine, run_of(launch), f"echo {number}; exit {number}")

            found = await asyncio.gather(*map(one, range(self.at_once)))
            assert found == [(number, f"{number}\n", "") for number in range(self.at_once)]

    async def gone(self, engine: Engine, run: Run, line: str) -> None:
        """Return once no process inside has this command line."""
        look = "for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$each; echo; done 2>/dev/null"
        async with asyncio.timeout(SECONDS):
            while line in (await told(engine, run, look))[1]:
                await asyncio.sleep(0.05)
