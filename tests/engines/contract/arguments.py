"""What every engine must do with a program and its arguments. An engine's tests inherit this class and give it an
`engine`."""

from __future__ import annotations

import pytest

from penstock.domain.states import State
from penstock.engines.base import Engine
from tests.engines.launches import a_launch, ended, log_of, outcome, printed, run_of

ODD = ("two words", "", 'it\'s "quoted"', "$HOME `id` \\n", "two\nlines", "*", "--", "-x", "ü", "a;b|c&d")


class ArgumentsContract:
    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    async def test_arguments_reach_the_program_as_they_are(self, engine: Engine) -> None:
        program = "import sys; print(repr(tuple(sys.argv[1:])))"
        _, log = await outcome(engine, a_launch(("python3", "-X", "utf8", "-c", program, *ODD)))
        assert log == f"{ODD!r}\n"

    async def test_the_program_is_told_to_stop_itself(self, engine: Engine) -> None:
        script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        launch = a_launch(("sh", "-c", script))
        await engine.start(launch)
        await printed(engine, run_of(launch), "up\n")
        await engine.stop(run_of(launch), 600)
        report = await ended(engine, run_of(launch))
        assert (report.units[0].state, report.units[0].exit_code) == (State.STOPPED, 0)
        assert (await log_of(engine, run_of(launch))).endswith(b"bye\n")

    @pytest.mark.parametrize("program", ["no-such-program", "/no/such/program"])
    async def test_a_program_that_is_not_there_is_said_to_be_missing(self, engine: Engine, program: str) -> None:
        report, log = await outcome(engine, a_launch((program, "--help")))
        unit = report.units[0]
        assert unit.state is State.CRASHED
        assert unit.exit_code == 127
        assert program in f"{unit.message} {log}"
        assert "not found" in f"{unit.message} {log}"
