"""Where a list goes on: the number of its next row, wrapped so that nobody is tempted to compute with it."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from penstock.errors import Invalid, Problem

NEWEST = 2**63 - 1


def write_cursor(seq: int) -> str:
    return urlsafe_b64encode(b"s%d" % seq).decode().rstrip("=")


def read_cursor(cursor: str | None) -> int:
    """The row a page begins at; without a cursor, the newest there is."""
    if cursor is None:
        return NEWEST
    try:
        text = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError:
        text = ""
    if len(cursor) > 40 or not (text[:1] == "s" and text[1:].isdigit() and 0 < int(text[1:]) <= NEWEST):
        problem = Problem("is not a cursor of a list", field="cursor", hint="use `next` of the page before as it is")
        raise Invalid("The cursor is wrong.", problems=[problem])
    return int(text[1:])
