"""Lists of workloads: every way to narrow them, in pages, and always off an index."""

from __future__ import annotations

import itertools
import json
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.dialects import sqlite

from penstock.domain.states import SHORT, State
from penstock.errors import Invalid
from penstock.store import workloads
from penstock.store.database import Database
from penstock.store.session import Store
from tests.store.making import a_workload

GROUPS = ("ann", "bob")
NAMES = ("train", "test")


async def names_of_all_pages(db: Database, groups: tuple[str, ...] | None, limit: int, **narrowed: object) -> list[str]:
    found, cursor = [], None
    while True:
        rows, cursor = await db.read(
            lambda tx, cursor=cursor: tx.workloads.page(groups, limit=limit, cursor=cursor, **narrowed)
        )
        assert len(rows) <= limit
        assert [row.id for row in rows] == [json.loads(row.summary)["id"] for row in rows]
        found += [row.id for row in rows]
        if cursor is None:
            return found


@pytest.fixture
async def stored(db: Database) -> list[tuple[str, str, State, str]]:
    """One of each group, name and state, with its id, oldest first."""
    kept = []

    def add(tx: Store) -> None:
        for state, group, name in itertools.product(State, GROUPS, NAMES):
            workload = a_workload(name, group, state=state)
            tx.workloads.add(workload)
            kept.append((group, name, state, workload.id))

    await db.write(add)
    return kept


async def test_every_way_to_narrow_a_list_gives_exactly_those_newest_first(db: Database, stored):
    states_asked = (None, [State.RUNNING], [State.EXITED, State.QUEUED, State.DELETED], [State.DELETED], [])
    statuses_asked = (None, ["pending"], ["running", "completed"], ["no-such"], [])
    for groups, name, states, statuses in itertools.product(
        (None, (), ("ann",), GROUPS), (None, *NAMES), states_asked, statuses_asked
    ):
        expected = [
            id
            for in_group, named, state, id in reversed(stored)
            if state is not State.DELETED
            and (groups is None or in_group in groups)
            and name in (None, named)
            and (states is None or state in states)
            and (statuses is None or SHORT[state] in statuses)
        ]
        found = await names_of_all_pages(db, groups, 500, name=name, states=states, statuses=statuses)
        assert found == expected, (groups, name, states, statuses)


async def test_pages_of_any_size_join_to_the_whole_list(db: Database, stored):
    whole = await names_of_all_pages(db, ("ann",), 500)
    for limit in (1, 7, len(whole) - 1, len(whole), len(whole) + 1):
        assert await names_of_all_pages(db, ("ann",), limit) == whole
        narrowed = await names_of_all_pages(db, ("ann",), limit, name="train", statuses=["pending", "failed"])
        assert len(narrowed) == 11


async def test_a_page_goes_on_where_it_was_even_if_the_row_there_is_gone(db: Database, stored):
    whole = await names_of_all_pages(db, None, 500)
    _, cursor = await db.read(lambda tx: tx.workloads.page(None, limit=3))
    await db.write(lambda tx: tx.workloads.remove(whole[3]))
    rows, _ = await db.read(lambda tx: tx.workloads.page(None, limit=2, cursor=cursor))
    assert [row.id for row in rows] == whole[4:6]


async def test_a_cursor_that_is_none_of_ours_is_invalid(db: Database):
    with pytest.raises(Invalid, match="cursor"):
        await db.read(lambda tx: tx.workloads.page(("ann",), cursor="nonsense"))


@pytest.mark.parametrize("groups", [1, 3, None])
@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("states", [workloads.LISTED, frozenset({State.QUEUED, State.EXITED})], ids=["all", "some"])
async def test_no_list_reads_more_than_an_index_leads_to(
    tmp_path: Path, groups: int | None, by_name: bool, states: frozenset
):
    path = tmp_path / "penstock.db"
    async with await Database.open(f"sqlite:///{path}"):
        pass
    compiled = workloads.page(states, groups, by_name).compile(
        dialect=sqlite.dialect(paramstyle="named"), compile_kwargs={"render_postcompile": True}
    )
    connection = sqlite3.connect(path)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {compiled}", compiled.params)]
    connection.close()
    reads = [step for step in plan if "workloads" in step]
    assert reads
    for step in reads:
        assert step.startswith("SEARCH workloads USING "), plan
