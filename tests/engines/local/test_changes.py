"""Which changes of runs are told, and when."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.engines.base import Run
from penstock.engines.local.changes import RunWatcher
from penstock.engines.local.layout import Layout
from penstock.settings import Settings

RUN = Run("abcd2345")


@pytest.fixture
def layout(place: Path) -> Layout:
    layout = Layout(Settings(data_dir=place / "data"))
    layout.make()
    layout.run_dir(RUN).mkdir()
    return layout


@pytest.fixture
def gone() -> list[Run]:
    """Runs whose supervisor is gone."""
    return []


@pytest.fixture
async def watcher(layout: Layout, gone: list[Run]) -> AsyncIterator[RunWatcher]:
    watcher = RunWatcher(layout, gone.append)
    yield watcher
    await watcher.close()


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


async def told(changes: AsyncIterator[Run]) -> Run:
    return await asyncio.wait_for(anext(changes), 10)


async def test_one_that_ended_before_it_was_watched_is_told(layout: Layout, watcher: RunWatcher) -> None:
    (layout.run_dir(RUN) / "result.json").write_text('{"units": []}')
    changes = watcher.changes()
    watcher.add(RUN, None)
    assert await told(changes) == RUN


async def test_a_supervisor_that_is_killed_is_noticed(
    watcher: RunWatcher, gone: list[Run], supervisor: subprocess.Popen[bytes]
) -> None:
    changes = watcher.changes()
    watcher.add(RUN, supervisor.pid)
    supervisor.kill()
    assert await told(changes) == RUN
    assert gone == [RUN]


async def test_a_result_is_told_once_although_its_supervisor_exits_after_it(
    layout: Layout, watcher: RunWatcher, gone: list[Run], supervisor: subprocess.Popen[bytes]
) -> None:
    changes = watcher.changes()
    watcher.add(RUN, supervisor.pid)
    (layout.run_dir(RUN) / "result.json.new").write_text('{"units": []}')
    assert await told(changes) == RUN
    (layout.run_dir(RUN) / "result.json.new").rename(layout.run_dir(RUN) / "result.json")
    assert await told(changes) == RUN
    supervisor.kill()
    while not gone:
        await asyncio.sleep(0.01)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(changes), 0.2)


async def test_a_start_that_comes_to_nothing_is_told(layout: Layout, watcher: RunWatcher) -> None:
    changes, asked = watcher.changes(), list[Run]()
    watcher.await_began(RUN, asked.append)
    assert await told(changes) == RUN
    assert asked == [RUN]
