"""How a database comes to have our schema: made, migrated or refused."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from penstock.domain.states import State
from penstock.errors import StartRefused
from penstock.store import migrations
from penstock.store.connections import make_engine, parse_url, prepare_file
from penstock.store.database import Database
from penstock.store.schema import HEAD, is_known, upgrade
from penstock.store.session import BEGIN_WRITING
from penstock.store.tables import metadata
from tests.postgresql import Cluster
from tests.store.making import ACCOUNT, MOMENT, a_workload
from tests.store.release import ENDED, RELEASED, RUNNING, TOKEN, UNIT, VOLUME

REVISIONS = sorted(path.name.partition("_")[0] for path in Path(migrations.__file__).parent.glob("versions/*.py"))


def migrate(url: str) -> None:
    """From nothing, through every migration."""
    parsed = parse_url(url)
    prepare_file(parsed)
    engine = make_engine(parsed, writes=True)
    with engine.connect() as connection:
        connection.exec_driver_sql(BEGIN_WRITING[engine.dialect.name])
        upgrade(connection)
        connection.commit()


def differences(url: str) -> list[object]:
    """Between the tables there and the tables in the code, as Alembic sees them."""
    with make_engine(parse_url(url), writes=True).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return compare_metadata(context, metadata)


def sqlite_schema(path: Path) -> set[tuple[object, ...]]:
    """All of it but the order in which things were made."""
    connection = sqlite3.connect(path)
    found = set(connection.execute("SELECT type, name, tbl_name FROM sqlite_master"))
    found |= set(
        connection.execute("SELECT name, substr(sql, instr(sql, 'WHERE')) FROM sqlite_master WHERE type='index'")
    )
    for table in [name for kind, name, *_ in found if kind == "table"]:
        found |= {(table, *row) for row in connection.execute(f"PRAGMA table_xinfo({table})")}
        for pragma in ("index_list", "foreign_key_list"):
            found |= {(table, *row[1:]) for row in connection.execute(f"PRAGMA {pragma}({table})")}
    connection.close()
    return found


def test_the_newest_revision_is_the_one_fresh_databases_are_stamped_with():
    assert REVISIONS[-1] == HEAD
    assert all(is_known(revision) for revision in REVISIONS)


def test_migrations_lead_to_the_tables_in_the_code(url: str):
    migrate(url)
    assert differences(url) == []


async def test_on_sqlite_a_fresh_database_is_the_same_as_a_migrated_one(tmp_path: Path):
    migrate(f"sqlite:///{tmp_path}/migrated.db")
    async with await Database.open(f"sqlite:///{tmp_path}/fresh.db"):
        pass
    assert sqlite_schema(tmp_path / "fresh.db") == sqlite_schema(tmp_path / "migrated.db")


async def test_on_postgresql_a_fresh_database_is_the_same_as_a_migrated_one(postgresql: Cluster):
    migrated, fresh = postgresql.new_database(), postgresql.new_database()
    migrate(migrated)
    async with await Database.open(fresh):
        pass
    assert postgresql.dump(fresh, "--schema-only") == postgresql.dump(migrated, "--schema-only")


def load(revision: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database as that release left it."""
    dump = RELEASED / f"{revision}.{kind}.sql"
    if kind == "postgresql":
        cluster: Cluster = request.getfixturevalue("postgresql")
        url = cluster.new_database()
        cluster.load(url, dump)
        return url
    connection = sqlite3.connect(tmp_path / "released.db")
    connection.executescript(dump.read_text())
    connection.close()
    return f"sqlite:///{tmp_path}/released.db"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_database_of_every_release_is_brought_up_with_all_that_is_in_it(
    revision: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
):
    url = load(revision, kind, request, tmp_path)
    async with await Database.open(url) as db:
        assert await db.read(lambda tx: tx.volumes.find("data", "ann")) == [VOLUME]
        assert await db.read(lambda tx: tx.volumes.account(VOLUME.id)) == ACCOUNT
        assert [w.id for w in await db.read(lambda tx: tx.workloads.active())] == [RUNNING.id]
        assert [w.id for w in await db.read(lambda tx: tx.workloads.using(VOLUME.id))] == [RUNNING.id]
        assert len(await db.read(lambda tx: tx.workloads.history(ENDED.id))) == 5
        assert await db.read(lambda tx: tx.workloads.units(ENDED.id)) == (UNIT,)
        lines = {line.state: line.at for line in await db.read(lambda tx: tx.workloads.history(ENDED.id))}
        held = (lines[State.EXITED] - lines[State.ASSIGNED]) / timedelta(milliseconds=1)
        [taken] = await db.read(lambda tx: tx.usage.taken(MOMENT, lines[State.EXITED], None))
        assert taken[:5] == ("ann", "ann", 1, 0, 4000 * held)
        assert await db.read(lambda tx: tx.tokens.by_hash("hash")) == TOKEN
        assert await db.read(lambda tx: tx.submissions.get("ann", "key")) == ("digest", "Workload", RUNNING.id)
        newer = a_workload("newer")
        await db.write(lambda tx: tx.workloads.add(newer))
        rows, _ = await db.read(lambda tx: tx.workloads.page(("ann",), states=[State.INSERTED]))
        assert rows[0].id == newer.id
    assert differences(url) == []


async def test_a_database_from_a_newer_version_is_refused_and_left_as_it_is(url: str):
    async with await Database.open(url):
        pass
    with make_engine(parse_url(url), writes=True).connect() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num='9999'")
    with pytest.raises(StartRefused, match="newer version of Penstock") as refused:
        await Database.open(url)
    assert "9999" in refused.value.message
    with make_engine(parse_url(url), writes=True).connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == "9999"


async def test_a_database_of_something_else_is_refused_and_left_as_it_is(url: str):
    with make_engine(parse_url(url), writes=True).connect() as connection:
        connection.exec_driver_sql("CREATE TABLE tokens (something_else INTEGER)")
    with pytest.raises(StartRefused, match=r"tables of something else \(tokens\)"):
        await Database.open(url)
    with make_engine(parse_url(url), writes=True).connect() as connection:
        assert inspect(connection).get_table_names() == ["tokens"]
