"""`--watch`: the server answers when something changed, so watching costs nothing while nothing does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from penstock.cli.output import note, print_data
from penstock.cli.table import Column, Row, table
from penstock.client import Client, Listing
from penstock.client.api import Query
from penstock.client.patience import Patience

WAIT_SECONDS = 30


Columns = Callable[[Sequence[Row] | None], list[Column]]
"""Those for these items; for None, all that any item may need."""


def watch(client: Client, path: str, query: Query, limit: int, output: str, columns: Columns) -> None:
    """Until Ctrl-C: on a terminal the table again, elsewhere what is new or changed, below what was there."""
    try:
        _watch(client, path, query, limit, output, columns)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            note("")


def _watch(client: Client, path: str, query: Query, limit: int, output: str, columns: Columns) -> None:
    listing = client.list(path, query, limit)
    patience = Patience(client, note)
    known: dict[str, Row] = {}
    header = True
    while True:
        fresh = [item for item in listing.items if known.get(item["id"]) != item]
        if output in ("table", "wide") and sys.stdout.isatty():
            _redraw(table(listing.items, columns(listing.items)))
        elif output in ("table", "wide"):
            for line in table(fresh, columns(None), more_come=True)[not header :]:
                click.echo(line)
            header = False
        else:
            _append(fresh, output)
        sys.stdout.flush()
        known = {item["id"]: item for item in listing.items}
        listing = _next(client, patience, path, query, limit, listing.version)


def _next(client: Client, patience: Patience, path: str, query: Query, limit: int, version: str | None) -> Listing:
    """The next listing that differs; an answer without news is waited over."""
    while True:
        listing = patience.ask(lambda: client.changed(path, query, limit, version, WAIT_SECONDS))
        if listing.version != version:
            return listing


def _append(items: list[Row], output: str) -> None:
    """One document per change: a line of JSON, a YAML document, an id."""
    for item in items:
        if output == "json":
            import json

            click.echo(json.dumps(item, ensure_ascii=False))
            continue
        if output == "yaml":
            click.echo("---")
        print_data(item, output)


def _redraw(lines: list[str]) -> None:
    import os

    height = os.get_terminal_size(1).lines or len(lines) + 1
    click.echo("\x1b[H\x1b[J" + "\n".join(lines[: height - 1]))
