"""Ids and names: which are legal, and how a new id is made."""

from __future__ import annotations

import re
from random import getrandbits

from penstock.errors import Problem

LETTERS = "abcdefghijklmnopqrstuvwxyz"
BASE32 = LETTERS + "234567"
NAME_LIMIT = 48
NAME = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?\Z")
ID = re.compile(r"[a-z][a-z2-7]{7}\Z")
VOLUME_REFERENCE = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z")
VOLUME_REFERENCE_LIMIT = 253
"""A volume as a task names it: an id, a name, or the name of a claim of the cluster."""
USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")


def new_id() -> str:
    """Return 8 characters of lower-case base32, a letter first, so that no YAML reader takes them for a number.

    An id is no secret, so the system is not asked for randomness each time.
    """
    number = getrandbits(40)
    rest = "".join(BASE32[number >> shift & 31] for shift in range(0, 35, 5))
    return LETTERS[(number >> 35) % 26] + rest


def shorten(text: str, limit: int = 60) -> str:
    """Make a user's text fit for a message: printable, and not a megabyte long."""
    if len(text) <= limit and text.isprintable():
        return text
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def suggest_name(text: str) -> str | None:
    """Return the nearest legal name, or None where nothing is left of the text."""
    guess = re.sub(r"[^a-z0-9]+", "-", text[:200].lower()).strip("-")
    guess = re.sub(r"\A[^a-z]+", "", guess)[:NAME_LIMIT].strip("-")
    return guess if NAME.match(guess) else None


def name_problem(text: str, *, field: str = "name", where: str | None = None) -> Problem | None:
    """Return what is wrong with the name of a volume or workload, or None."""
    if len(text) <= NAME_LIMIT and NAME.match(text):
        return None
    guess = suggest_name(text)
    return Problem(
        f"'{shorten(text)}' is not a name: lower-case letters, digits and '-', "
        f"a letter first, no '-' last, {NAME_LIMIT} characters at most",
        field=field,
        where=where,
        hint=f"for example '{guess}'" if guess else None,
    )
