"""Migrations of older databases. A released migration is never edited.

Alembic is called by hand: there is no alembic.ini, because the server itself migrates when it starts.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

_HERE = Path(__file__).parent


def is_known(revision: str) -> bool:
    """Is this one of the revisions that this version knows the way up from?"""
    return revision in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def upgrade(connection: Connection, to: str = "head") -> None:
    """In the caller's transaction."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
