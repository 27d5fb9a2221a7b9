"""`penstock describe`: everything about one thing, and what happened to it in order."""

from __future__ import annotations

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.kinds import Kind
from penstock.cli.options import api_url_option, connect, output_option
from penstock.cli.output import print_data
from penstock.cli.table import Column, Row, field, moment, table
from penstock.cli.tree import command
from penstock.client import Client
from penstock.client.address import quote

PATHS = {"jobs": "/v1/workloads", "volumes": "/v1/volumes"}
EVENTS = [
    moment("Time", "at"),
    field("About", "about", drop=1, least=8),
    field("What", "reason", least=12),
    Column("Message", lambda event: _said(event), least=16, wrap=True),
]


@command(
    "describe",
    examples="""
    penstock describe job train
    penstock describe volume training-data
    penstock describe train -o json""",
)
@click.argument("words", metavar="[job|volume] NAME_OR_ID", nargs=-1, required=True, shell_complete=kinds_and_names)
@output_option
@api_url_option(short=True)
def describe(words: tuple[str, ...], output: str, api_url: str | None) -> None:
    """Show a job or a volume with all that happened to it, in order."""
    kind, ref = _asked(words)
    client = connect(api_url)
    path = f"{PATHS[kind]}/{quote(ref)}"
    thing = client.get(path, {"usage": True} if kind == "volumes" else None)
    events = client.get(f"{PATHS[kind]}/{thing['id']}/events")["items"]
    if output not in ("table", "wide"):
        print_data(thing | {"events": events}, output)
        return
    _show(client, kind, thing)
    if events:
        click.echo("\nEvents:")
        for line in table(events, EVENTS, indent=2):
            click.echo(f"  {line}")


def _asked(words: tuple[str, ...]) -> tuple[str, str]:
    """`describe NAME` is a job; `describe job/NAME` is kubectl's spelling."""
    if len(words) == 1 and "/" in words[0]:
        words = tuple(words[0].split("/", 1))
    if len(words) == 1:
        return "jobs", words[0]
    if len(words) > 2:
        raise click.UsageError("Describe one thing: penstock describe job NAME.")
    kind = Kind("jobs", "volumes").convert(words[0], None, click.get_current_context())
    return kind, words[1]


def _show(client: Client, kind: str, thing: Row) -> None:
    if kind == "jobs":
        from penstock.cli.jobs.status import show_job

        show_job(thing, history=False)
    else:
        from penstock.cli.volumes import show_volume

        show_volume(thing)


def _said(event: Row) -> str:
    times = f" ({event['count']} times)" if event.get("count", 1) > 1 else ""
    return f"{event.get('message') or ''}{times}"
