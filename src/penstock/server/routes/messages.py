"""Requests and responses that routes share: lists in pages, waiting for a change instead of polling, bodies.

The hottest routes read their query or body in one step: FastAPI's own way costs more than the list or storing the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol, Self, TypeVar
from urllib.parse import parse_qsl

from fastapi import Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.domain.names import shorten
from penstock.domain.users import Caller
from penstock.errors import Invalid, Problem
from penstock.server.identity import AuthorizedCall

Limit = Annotated[int, Query(ge=1, le=500, description="how many at most")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]
AllUsers = Annotated[bool, Query(description="everyone's, for admins")]
Everything = Annotated[bool, Query(description="of all groups the caller may see, not only of theirs")]


class ListQuery(BaseModel):
    """The query of every list."""

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
        """Return the parameters for `openapi_extra`, as OpenAPI writes them."""
        described = cls.model_json_schema()["properties"].items()
        return {"parameters": [_parameter(name, dict(schema)) for name, schema in described]}


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": schema.pop("description", ""), "schema": schema}


class JsonModel(Protocol):
    def model_dump_json(self) -> str: ...


class HasName(Protocol):
    @property
    def name(self) -> str: ...


class NamedModel(HasName, JsonModel, Protocol): ...


Few = TypeVar("Few", bound=HasName)


async def until_changed(call: AuthorizedCall, query: ListQuery) -> Caller:
    """Wait for a change since `seen`, and return the caller with the rights they have by then."""
    if not query.wait or query.seen is None:
        return call.caller
    if not query.seen.isascii() or not query.seen.isdigit():
        raise Invalid(
            "The wait is invalid.", problems=[Problem("is not a version that this server gave", field="seen")]
        )
    await call.parts.db.changed(int(query.seen), query.wait)
    return call.parts.people.renewed(call.caller)


def words(text: str | None, field: str, known: Sequence[str]) -> list[str] | None:
    """Return the words of a comma-separated filter; each must be known."""
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
    """Join items that are JSON already: a list is copied, not computed."""
    following = f'"{after}"' if after else "null"
    body = f'{{"items":[{",".join(items)}],"next":{following},"version":"{version}"}}'
    return Response(body, media_type="application/json")


def one_page(models: Sequence[Few], name: str | None, limit: int, cursor: str | None) -> tuple[list[Few], str | None]:
    """Return a page of a short list; the cursor is the name that the next page begins with."""
    found = [model for model in models if name in (None, model.name)]
    if cursor is not None:
        names = [model.name for model in found]
        if cursor not in names:
            raise Invalid("The cursor is invalid.", problems=[Problem("is not a cursor of this list", field="cursor")])
        found = found[names.index(cursor) :]
    return found[:limit], found[limit].name if len(found) > limit else None


def page_of_few(
    models: Sequence[NamedModel], name: str | None, limit: int, cursor: str | None, version: int
) -> Response:
    shown, after = one_page(models, name, limit, cursor)
    return page_of(shown, after, version)


def page_of(models: Sequence[JsonModel], after: str | None, version: int) -> Response:
    return page([model.model_dump_json() for model in models], after, version)


def answer(model: BaseModel, status: int = 200) -> Response:
    return Response(model.model_dump_json(), status_code=status, media_type="application/json")


Body = TypeVar("Body", bound=BaseModel)
KEY = "Idempotency-Key"
KEY_MEANING = "the same key makes the same thing once"
Key = Annotated[str | None, Header(alias=KEY, description=KEY_MEANING)]


async def read_body(model: type[Body], request: Request) -> Body:
    raw = await request.body()
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        found = [each | {"loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
        raise RequestValidationError(found) from None


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """Return the body and the key for `openapi_extra`, as OpenAPI writes them."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    key = {"name": KEY, "in": "header", "description": KEY_MEANING, "schema": {"type": "string"}}
    return {"requestBody": {"required": True, "content": content}, "parameters": [key]}
