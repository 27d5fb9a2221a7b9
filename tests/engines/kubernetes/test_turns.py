"""Units that print faster than it can be taken in: all of it is kept, and they take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.engines.kubernetes.logs import collect
from penstock.engines.kubernetes.logs.collect import BATCH, LONGEST_REST
from penstock.engines.kubernetes.logs.files import KeptLog, prepare
from penstock.engines.kubernetes.logs.stream import LogLine
from penstock.engines.shared.logstore import LogReader

LINE = b"x" * 1023 + b"\n"
SIZE = 8 * BATCH
LIMIT = 1 << 30


async def endless(enough: Callable[[], bool]) -> AsyncGenerator[LogLine, None]:
    """As fast as they are wanted, and never a pause in which others could do something."""
    for number in range(100 * SIZE // len(LINE)):
        if enough():
            return
        yield LogLine(number, LINE)
    raise AssertionError("it never was enough")


async def kept(place: Path, part: int, turns: collect._FairShare, enough: Callable[[], bool]) -> None:
    prepare(place, LIMIT, "1Gi")
    log = KeptLog(place, part, LIMIT)
    log.resume("pod", there=True)
    try:
        writer = collect._Writer(log, SimpleNamespace(last=0), lambda: None, turns)  # type: ignore[arg-type]
        await writer.copy(endless(enough))
    finally:
        log.close()


def size(place: Path, part: int) -> int:
    reader = LogReader(place, part)
    reader.refresh()
    return reader.size()


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each who has written much rests."""
    rested: list[float] = []

    def recorded(sleep: Callable[[float], Awaitable[None]]) -> Callable[[float], Awaitable[None]]:
        async def rest(seconds: float) -> None:
            rested.append(seconds)
            await sleep(0)

        return rest

    monkeypatch.setattr(collect, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": recorded(asyncio.sleep)}))
    return rested


async def test_one_that_never_pauses_lets_others_have_their_turn(tmp_path: Path) -> None:
    had = asyncio.Event()
    asyncio.get_running_loop().call_soon(had.set)
    await kept(tmp_path, 0, collect._FairShare(), had.is_set)
    assert size(tmp_path, 0) >= BATCH


async def test_one_that_prints_much_alone_need_not_rest(tmp_path: Path, rests: list[float]) -> None:
    await kept(tmp_path, 0, collect._FairShare(), lambda: len(rests) == 8)
    assert set(rests) == {0}


async def test_several_rest_as_long_as_they_worked_and_one_at_a_time(tmp_path: Path, rests: list[float]) -> None:
    turns = collect._FairShare()
    await asyncio.gather(*(kept(tmp_path, part, turns, lambda: len(rests) >= 30) for part in range(3)))
    together = rests[3:25]
    assert all(0 < rest <= LONGEST_REST for rest in together)
    assert all(size(tmp_path, part) >= 5 * BATCH for part in range(3))
