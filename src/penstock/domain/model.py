"""The base class of every noun: immutable, typed, and without unknown fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, PlainSerializer


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def now() -> datetime:
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """Format a time the one way it is written everywhere: `2026-11-15T21:31:15.123Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _no_flag(value: object) -> object:
    """Refuse JSON's `false`, which Python takes for 0."""
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")
    return value


Whole = Annotated[int, BeforeValidator(_no_flag)]
Time = Annotated[AwareDatetime, PlainSerializer(iso, return_type=str)]
