"""Lists in pages with a cursor, and waiting for a change instead of polling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol, Self, TypeVar
from urllib.parse import parse_qsl

from fastapi import Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.domain.names import shorten
from penstock.domain.users import Caller
from penstock.errors import Invalid, Problem
from penstock.server.identity import Asking

Limit = Annotated[int, Query(ge=1, le=500, description="how many at most")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]
AllUsers = Annotated[bool, Query(description="everyone's, for admins")]
Everything = Annotated[bool, Query(description="of all groups the caller may see, not only of theirs")]


class Listing(BaseModel):
    """What every list takes. Read from the request in one step: FastAPI's way costs more than the list itself."""

    model_config = ConfigDict(extra="ignore")

    limit: Annotated[int, Field(ge=1, le=500, description="how many at most")] = 100
    cursor: Annotated[str | None, Field(max_length=200, description="`next` of the page before")] = None
    name: Annotated[str | None, Field(description="only those of this name")] = None
    status: Annotated[str | None, Field(description="only those of these, comma separated")] = None
    all_users: Annotated[bool, Field(description="everyone's, for admins")] = False
    everything: Annotated[bool, Field(description="of all groups the caller may see, not only of theirs")] = False
    wait: Annotated[float, Field(ge=0, le=60, description="seconds to wait for a change since `seen`")] = 0
    seen: Annotated[str | None, Field(max_length=40, description="`version` of the answer you have")] = None

    @classmethod
    def of(cls, request: Request) -> Self:
        raw = request.scope["query_string"]
        try:
            return cls.model_validate(dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {})
        except ValidationError as error:
            problems = [Problem(each["msg"][:300], field=".".join(map(str, each["loc"]))) for each in error.errors()]
            raise Invalid("The query cannot be read.", problems=problems) from None

    @classmethod
    def documented(cls) -> dict[str, Any]:
        """For `openapi_extra`: the same parameters, as OpenAPI writes them."""
        described = cls.model_json_schema()["properties"].items()
        return {"parameters": [_parameter(name, dict(schema)) for name, schema in described]}


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": schema.pop("description", ""), "schema": schema}


class Dumped(Protocol):
    def model_dump_json(self) -> str: ...


class Called(Protocol):
    @property
    def name(self) -> str: ...


class Named(Called, Dumped, Protocol): ...


Few = TypeVar("Few", bound=Called)


async def until_changed(asked: Asking, query: Listing) -> Caller:
    """Who asks, with what they may by then."""
    if not query.wait or query.seen is None:
        return asked.caller
    if not query.seen.isascii() or not query.seen.isdigit():
        raise Invalid("The wait cannot be used.", problems=[Problem("is not a version of ours", field="seen")])
    await asked.parts.db.changed(int(query.seen), query.wait)
    return asked.parts.people.renewed(asked.caller)


def words(text: str | None, field: str, known: Sequence[str]) -> list[str] | None:
    """The words of a comma-separated filter, each a known one."""
    if text is None:
        return None
    asked = [word.strip() for word in text.split(",") if word.strip()]
    problems = [
        Problem(f"'{shorten(word)}' is not a {field}", field=field, hint=", ".join(known))
        for word in asked
        if word not in known
    ]
    if problems:
        raise Invalid("The filter cannot be used.", problems=problems)
    return asked


def page(items: Sequence[str], after: str | None, version: int) -> Response:
    """Joins items that are JSON already: a list is copied, not computed."""
    following = f'"{after}"' if after else "null"
    body = f'{{"items":[{",".join(items)}],"next":{following},"version":"{version}"}}'
    return Response(body, media_type="application/json")


def one_page(models: Sequence[Few], name: str | None, limit: int, cursor: str | None) -> tuple[list[Few], str | None]:
    """A page of what is few enough to be in memory whole; the cursor is the name the next page begins with."""
    found = [model for model in models if name in (None, model.name)]
    if cursor is not None:
        names = [model.name for model in found]
        if cursor not in names:
            raise Invalid("The cursor cannot be used.", problems=[Problem("is not one of ours", field="cursor")])
        found = found[names.index(cursor) :]
    return found[:limit], found[limit].name if len(found) > limit else None


def page_of_few(models: Sequence[Named], name: str | None, limit: int, cursor: str | None, version: int) -> Response:
    shown, after = one_page(models, name, limit, cursor)
    return page_of(shown, after, version)


def page_of(models: Sequence[Dumped], after: str | None, version: int) -> Response:
    return page([model.model_dump_json() for model in models], after, version)


def answer(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status_code=status, media_type="application/json")
