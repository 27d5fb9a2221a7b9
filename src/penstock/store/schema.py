"""Make a database's schema, or upgrade it to ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)

from penstock.errors import StartRefused
from penstock.store.session import BEGIN_WRITING
from penstock.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0006"
"""The newest revision in migrations/versions."""

# Alembic's own table, just as it makes it. Written here so that a fresh database does not cost Alembic's import.
_revision = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


_OWN_DATABASE = "Give Penstock a database, or a PostgreSQL schema, of its own in database_url."


def prepare(engine: Engine) -> None:
    """Makes the schema in an empty database, brings an older one up, refuses one this version does not know.
    All of it or nothing: both databases make tables inside a transaction."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # Alembic changes a table there by making it anew; dropping the old one must not take what refers to it.
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.exec_driver_sql(BEGIN_WRITING[engine.dialect.name])
        _prepare(connection)
        connection.commit()


def _prepare(connection: Connection) -> None:
    tables = set(inspect(connection).get_table_names())
    if _revision.name not in tables:
        if taken := sorted(tables & set(metadata.tables)):
            raise StartRefused(f"The database has tables of something else ({', '.join(taken)}).", hint=_OWN_DATABASE)
        metadata.create_all(connection, checkfirst=False)
        _revision.create(connection, checkfirst=False)
        connection.execute(insert(_revision).values(version_num=HEAD))
        return
    found = connection.execute(select(_revision.c.version_num)).scalar()
    if found == HEAD:
        return
    if found is None or not is_known(found):
        raise StartRefused(
            f"The database was made by a newer version of Penstock (its revision is {found}, ours {HEAD}).",
            hint="Install that version again; an older one would damage the data.",
        )
    upgrade(connection)


def is_known(revision: str) -> bool:
    """Is this one of the revisions that this version knows the way up from?"""
    from alembic.script import ScriptDirectory

    return revision in {script.revision for script in ScriptDirectory.from_config(_alembic()).walk_revisions()}


def upgrade(connection: Connection, to: str = "head") -> None:
    """Migrate in the caller's transaction."""
    from alembic import command

    config = _alembic()
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def _alembic() -> Config:
    """Return the configuration: there is no alembic.ini, because the server itself migrates when it starts."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
