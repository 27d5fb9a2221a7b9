"""Runs that changed, as whoever follows them is told."""

from __future__ import annotations

import asyncio

from penstock.engines.base import Run
from penstock.engines.shared.wakeup import Changes


async def test_a_run_that_changes_often_is_told_once_until_it_is_looked_at() -> None:
    changes = Changes()
    listening = changes.follow()
    first = asyncio.ensure_future(anext(listening))
    await asyncio.sleep(0)
    for _ in range(100):
        changes.tell(Run("a"))
        changes.tell(Run("b"))
    assert await first == Run("a")
    assert await anext(listening) == Run("b")
    more = asyncio.ensure_future(anext(listening))
    await asyncio.sleep(0)
    assert not more.done()
    changes.tell(Run("a"))
    assert await more == Run("a")


async def test_changes_of_a_large_run_are_gathered_for_a_moment() -> None:
    changes = Changes()
    listening = changes.follow()
    large = asyncio.ensure_future(anext(listening))
    await asyncio.sleep(0)
    changes.tell(Run("large"), 1000)
    await asyncio.sleep(0)
    assert not large.done()
    changes.tell(Run("small"), 1)
    assert await large == Run("small")
    assert await anext(listening) == Run("large")
