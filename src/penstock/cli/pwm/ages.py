"""Write ages as PWM does: `0:05`, `3 h`, `2 d`."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.cli.ui.table import Row

FRESH_SECONDS = 20
HOUR, DAY = 3600, 86400


def age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < HOUR:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // HOUR} h" if whole < DAY else f"{whole // DAY} d"


def lasted(start: str | None, end: str | None) -> str:
    """From one time of the API to another; without an end, until now."""
    if not start:
        return "-"
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return age((until - datetime.fromisoformat(start)).total_seconds())


def last_seen(row: Row) -> str:
    """Where nobody says when, it is this machine, or a cluster that answers for it."""
    moment = row.get("last_seen")
    if not moment:
        return "now" if row.get("ready", True) else "-"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    return "now" if seconds < FRESH_SECONDS else age(seconds)
