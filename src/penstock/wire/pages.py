"""Pages of a list, and short answers that several nouns share."""

from __future__ import annotations

from typing import Any

from penstock.domain.model import Model, Time


class Page(Model):
    """`next` is the cursor of the following page; `version` goes into `seen` to wait for a change."""

    next: str | None = None
    version: str


class Deleted(Model):
    id: str
    name: str
    deleted: bool = True
    message: str | None = None
    """What it still waits for, or how many went with it."""


class Uploaded(Model):
    id: str


class Event(Model):
    """Something that happened, by our record or in the engine's own words."""

    at: Time
    kind: str
    """`Normal` or `Warning`."""
    reason: str
    about: str
    """What it happened to: `node 1`, `index 3`, `volume data`, `job`."""
    message: str
    count: int = 1


class Events(Model):
    items: tuple[Event, ...]


class ErrorBody(Model):
    """Every error, on every route."""

    detail: str
    code: str
    message: str
    hint: str | None = None
    problems: tuple[dict[str, str], ...] = ()
    details: dict[str, Any] = {}
