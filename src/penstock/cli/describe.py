"""`penstock describe`: show everything about one thing and its events in order."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.get import named
from penstock.cli.ui.command import command
from penstock.cli.ui.kinds import PATHS, SINGLE, KindChoice, KindParam, check_asking, one_thing, view_of
from penstock.cli.ui.options import common_options, connect, group_option
from penstock.cli.ui.output import as_table, echo, echo_styled, print_data, print_facts
from penstock.cli.ui.table import Column, Row, field, moment, table
from penstock.client.address import segment
from penstock.client.api import Client

EVENTS = [
    moment("Time", "at"),
    field("About", "about", drop=1, least=8),
    field("What", "reason", least=12),
    Column("Message", lambda event: _message(event), least=16, wrap=True),
]


@command(
    "describe",
    examples="""
    penstock describe job train
    penstock describe volume training-data
    penstock describe wk first-test -g your-group
    penstock describe train -o json""",
)
@click.argument("words", metavar="[KIND] NAME_OR_ID", nargs=-1, required=True, shell_complete=kinds_and_names)
@group_option
@common_options(short=True)
def describe(words: tuple[str, ...], group: str | None, output: str) -> None:
    """Show everything about one thing; for a job or a volume, its events in order.

    KIND is any kind that get knows; the default is a job.
    """
    kind, ref = one_thing(words, KindParam())
    client = connect()
    if kind.noun not in SINGLE:
        _describe_listed(client, kind, ref, group, output)
        return
    asked: dict[str, Any] = {"group": group} | ({"usage": True} if kind.noun == "Volume" else {})
    thing = client.get(f"{PATHS[kind.noun]}/{segment(ref)}", asked)
    check_asking(kind, ref, thing)
    events = client.get(f"{PATHS[kind.noun]}/{thing['id']}/events", {"group": group})["items"]
    if not as_table(output):
        print_data(thing | {"events": events}, output)
        return
    _show(kind, thing)
    if events:
        echo("\nEvents:")
        for line in table(events, EVENTS, indent=2):
            echo_styled(f"  {line}")


def _describe_listed(client: Client, kind: KindChoice, ref: str, group: str | None, output: str) -> None:
    """Show a kind that has no page of its own: all columns of its list, one below the other."""
    view = view_of(KindChoice(kind.noun), wide=True)
    rows = named(client, kind, view, {"group": group}, ref)
    if not as_table(output):
        print_data(rows[0] if len(rows) == 1 else rows, output)
        return
    for number, row in enumerate(rows):
        if number:
            echo()
        print_facts([fact for column in view.columns(rows) for fact in _facts(column, row)])


def _facts(column: Column, row: Row) -> list[tuple[str, str]]:
    """Split a value of several lines into facts under one name."""
    first, *further = column.value(row).splitlines() or ["-"]
    return [(column.title, first), *(("", line) for line in further)]


def _show(kind: KindChoice, thing: Row) -> None:
    if kind.noun == "Workload":
        from penstock.cli.jobs.status import show_job

        show_job(thing, history=False)
    else:
        from penstock.cli.pwm.volumes import policy, sub_path
        from penstock.cli.volumes import show_volume

        show_volume(thing, [("Sub Path", sub_path(thing)), ("Policy", policy(thing))])


def _message(event: Row) -> str:
    times = f" ({event['count']} times)" if event.get("count", 1) > 1 else ""
    return f"{event.get('message') or ''}{times}"
