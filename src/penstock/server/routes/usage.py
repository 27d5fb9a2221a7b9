"""Routes for usage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from penstock.domain.model import now
from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_duration
from penstock.errors import Invalid, Problem
from penstock.server.identity import Authorized
from penstock.server.routes.messages import answer
from penstock.services.usage import By
from penstock.wire.measures import UsageReport

router = APIRouter(tags=["usage"])

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
Since = Annotated[str, Query(max_length=64, description="how long ago, such as `30d`, or a time")]
Grouped = Annotated[By | None, Query(description="of which the rows are; of each user in each group if not said")]


@router.get("/v1/usage", response_model=UsageReport)
async def report_usage(call: Authorized, since: Since = "30d", by: Grouped = None) -> Response:
    """What was taken of the machines, by user and group: hours of GPUs and CPUs, and how long the GPUs worked. Of the
    caller's groups; of everyone for admins. What was deleted since counts, and what still runs up to now."""
    return answer(await call.parts.usage.report(call.caller, _moment(since), by))


def _moment(since: str) -> datetime:
    moment = _read(since)
    if moment > now():
        raise _refused(f"'{shorten(since)}' is in the future")
    return moment


def _read(since: str) -> datetime:
    """Return the time meant by a duration or a time; nothing is before 1970."""
    try:
        return max(now() - timedelta(seconds=parse_duration(since)), FIRST)
    except OverflowError:
        return FIRST
    except NotAQuantity:
        return _time(since)


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return max(moment if moment.tzinfo else moment.replace(tzinfo=UTC), FIRST)
    except ValueError:
        raise _refused(f"'{shorten(text)}' is neither a duration nor a time") from None


def _refused(said: str) -> Invalid:
    problem = Problem(said, field="since", hint="for example 30d or 2026-11-15T21:31:15")
    return Invalid("The usage cannot be counted.", problems=[problem])
