"""`--watch`: wait for the server to report a change, so that watching an idle list costs nothing.

What no server tells of, such as the memory of a GPU, is asked for every two seconds, as PWM does.
"""

from __future__ import annotations

import sys
from time import sleep

from penstock.cli.ui.kinds import TableView
from penstock.cli.ui.output import as_json, echo, echo_styled, note, print_data
from penstock.cli.ui.table import Column, Row, settled, table
from penstock.client.api import Client, ListPage, Query
from penstock.client.retry import ServerWait

WAIT_SECONDS = 30
PAUSE_SECONDS = 2
MOVING = ("last_seen",)
"""Fields that differ each time without being news."""


def watch(client: Client, view: TableView, query: Query, limit: int, output: str) -> None:
    """Watch until Ctrl-C: redraw the table on a terminal, elsewhere print new and changed rows below."""
    try:
        _watch(client, view, query, limit, output)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            note("")


def _watch(client: Client, view: TableView, query: Query, limit: int, output: str) -> None:
    listing = client.list(view.path, query, limit if view.told else 0)
    patience = ServerWait(client, note)
    known: dict[str, Row] = {}
    drawn = output in ("table", "wide") and sys.stdout.isatty()
    header = True
    columns: list[Column] = []
    while True:
        rows = view.rows(listing.items)
        fresh = [row for row in rows if _news(known.get(_key(row))) != _news(row)]
        if drawn:
            shown = view.shown(client, rows)
            redraw(table(shown, view.columns(shown), ruled=view.ruled))
        elif output in ("table", "wide"):
            above, shown = 1 + view.ruled, view.shown(client, fresh)
            columns = settled(columns or view.columns(None), shown)
            lines = table(shown, columns, more_come=True, ruled=view.ruled)
            for line in lines if header else lines[above:]:
                echo_styled(line)
            header = False
        else:
            _append(fresh, output)
        sys.stdout.flush()
        known = {_key(row): row for row in rows}
        listing = _next(client, patience, view, query, limit, listing.version, redrawn=drawn and view.moving)


def _key(row: Row) -> str:
    return str(row.get("id") or row.get("name"))


def _news(row: Row | None) -> Row | None:
    return row and {key: value for key, value in row.items() if key not in MOVING}


def _next(
    client: Client,
    patience: ServerWait,
    view: TableView,
    query: Query,
    limit: int,
    version: str | None,
    *,
    redrawn: bool,
) -> ListPage:
    """Return the next listing that differs, or the next of all if the table is redrawn anyway."""
    if not view.told:
        sleep(PAUSE_SECONDS)
        return patience.ask(lambda: client.list(view.path, query, 0))
    seconds = PAUSE_SECONDS if redrawn else WAIT_SECONDS
    while True:
        listing = patience.ask(lambda: client.changed(view.path, query, limit, version, seconds))
        if redrawn or listing.version != version:
            return listing


def _append(items: list[Row], output: str) -> None:
    """Print a document per change: a line of JSON, a YAML document or an id."""
    for item in items:
        if output == "json":
            echo(as_json(item))
            continue
        if output == "yaml":
            echo("---")
        print_data(item, output)


def redraw(lines: list[str]) -> None:
    import os

    height = os.get_terminal_size(1).lines or len(lines) + 1
    echo_styled("\x1b[H\x1b[J" + "\n".join(lines[: height - 1]))
