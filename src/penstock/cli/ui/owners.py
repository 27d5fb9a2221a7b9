"""Count what a command would stop or destroy, and whose it is, before it asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from penstock.cli.ui.confirm import confirmed
from penstock.cli.ui.table import Row
from penstock.client.api import Client

SHOWN = 10


def of_others(client: Client, things: Iterable[Row]) -> str | None:
    """Say whose they are, as `of ann (3), bob (1)`; None where all are one's own."""
    owners = Counter(str(thing["user"]) for thing in things)
    if not owners or not owners.keys() - {client.get("/v1/whoami")["user"]}:
        return None
    whose = ", ".join(f"{name} ({count})" for name, count in owners.most_common(SHOWN))
    more = f" and {len(owners) - SHOWN} others" if len(owners) > SHOWN else ""
    return f"of {whose}{more}"


def stop_agreed(client: Client, job: Row) -> bool:
    """Ask before somebody else's job is stopped."""
    if of_others(client, [job]) is None:
        return True
    return confirmed(f"Stop job {job['name']} ({job['id']}) of {job['user']}?", "--yes")
