"""Lists: pages with a cursor, and waiting for a change instead of asking again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from fastapi import Query, Response
from pydantic import BaseModel

from penstock.errors import Invalid, Problem
from penstock.store.database import Database

Limit = Annotated[int, Query(ge=1, le=500, description="how many at most")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]
AllUsers = Annotated[bool, Query(description="everyone's, for admins")]
Wait = Annotated[float, Query(ge=0, le=60, description="seconds to wait for a change since `seen`")]
Seen = Annotated[str | None, Query(max_length=40, description="`version` of the answer you have")]


class Named(Protocol):
    name: str

    def model_dump_json(self) -> str: ...


async def until_changed(db: Database, wait: float, seen: str | None) -> None:
    if not wait or seen is None:
        return
    if not seen.isascii() or not seen.isdigit():
        raise Invalid("The wait cannot be used.", problems=[Problem("is not a version of ours", field="seen")])
    await db.changed(int(seen), wait)


def page(items: Sequence[str], after: str | None, version: int) -> Response:
    """Joins items that are JSON already: a list is copied, not computed."""
    following = f'"{after}"' if after else "null"
    body = f'{{"items":[{",".join(items)}],"next":{following},"version":"{version}"}}'
    return Response(body, media_type="application/json")


def page_of_few(models: Sequence[Named], name: str | None, limit: int, cursor: str | None, version: int) -> Response:
    """A page of what is few enough to be in memory whole; the cursor is the name the page begins with."""
    found = [model for model in models if name in (None, model.name)]
    if cursor is not None:
        names = [model.name for model in found]
        if cursor not in names:
            raise Invalid("The cursor cannot be used.", problems=[Problem("is not one of ours", field="cursor")])
        found = found[names.index(cursor) :]
    after = found[limit].name if len(found) > limit else None
    return page([model.model_dump_json() for model in found[:limit]], after, version)


def page_of(models: Sequence[BaseModel], after: str | None, version: int) -> Response:
    return page([model.model_dump_json() for model in models], after, version)


def answer(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status_code=status, media_type="application/json")
