"""Every test of the store runs on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.store.database import Database
from tests.postgresql import postgresql

__all__ = ["postgresql"]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'penstock.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_url")
    return request.getfixturevalue("postgresql").new_schema()


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    async with await Database.open(url) as database:
        yield database
