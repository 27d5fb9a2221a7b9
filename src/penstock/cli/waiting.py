"""The place in the queue: the sentence of one that waits ends with it, where a table would cut it away."""

from __future__ import annotations

import re

from penstock.cli.table import Row

AHEAD = re.compile(r"(?:; )?([0-9]+) ahead in the queue\Z")


def ahead(row: Row) -> str | None:
    """How many are before it; None if nobody is, or it does not wait."""
    found = AHEAD.search(row.get("message") or "") if row.get("status") == "pending" else None
    return found[1] if found else None


def without_place(sentence: str) -> str:
    return AHEAD.sub("", sentence)
