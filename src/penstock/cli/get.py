"""`penstock get`: list things of one kind in a table."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.completion import names_of_kind
from penstock.cli.ui.command import command
from penstock.cli.ui.kinds import PATHS, SINGLE, KindChoice, KindParam, TableView, check_asking, is_called, view_of
from penstock.cli.ui.options import common_options, connect, group_option
from penstock.cli.ui.output import as_table, echo, note, print_data, print_items
from penstock.cli.ui.table import Row
from penstock.client.address import segment
from penstock.client.api import Client, ListPage
from penstock.domain.kinds import ALIASES, APPLIED
from penstock.errors import NotFound

SHOWN = 100
"""Lists that grow without end show only the newest."""
Asked = dict[str, Any]


@command(
    "get",
    examples="""
    penstock get gpus
    penstock get nodes -o wide
    penstock get wk -w
    penstock get vol -g pwm.resource
    penstock get wk train -o yaml > train.yaml""",
)
@click.argument("kind", type=KindParam())
@click.argument("ref", metavar="[NAME_OR_ID]", required=False, shell_complete=names_of_kind)
@group_option
@click.option("-w", "--watch", is_flag=True, help="Keep showing changes until Ctrl-C.")
@click.option("-j", "--json", "as_json", is_flag=True, help="The same as -o json.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=SHOWN,
    show_default=True,
    help="Only the newest workloads or volumes; 0 is all.",
)
@common_options(short=True)
def get(
    kind: KindChoice,
    ref: str | None,
    group: str | None,
    watch: bool,
    as_json: bool,
    limit: int,
    output: str,
) -> None:
    """List workloads, volumes, nodes, GPUs, CPUs, storages, groups or users.

    KIND is a word of PWM (wk, gpuw, cpuw, gpu, cpu, node, group, user, vol, storage, and their plurals), or
    job or volume for Penstock's own columns. Without --group, all of your groups are shown (an admin sees all).
    -o yaml prints documents that apply accepts again; -o json prints what the server answers.
    """
    output = "json" if as_json else output
    if ref is not None:
        segment(ref)
    client = connect()
    view = view_of(kind, wide=output == "wide")
    asked: Asked = {"group": group}
    if group is None and kind.noun in SINGLE:
        asked["everything"] = True
    if watch:
        _watch(client, kind, view, asked, ref, limit, output)
    elif output == "yaml" and _documents(client, kind, view, asked, ref, limit):
        return
    elif ref is None:
        keep = (lambda item: bool(view.rows([item]))) if kind.asking else None
        listing = client.list(view.path, asked, limit if view.told else 0, keep)
        _print(client, view, view.rows(listing.items), output)
        _note_more(listing, limit)
    elif kind.noun not in SINGLE:
        _print(client, view, named(client, kind, view, asked, ref), output)
    else:
        thing = _single(client, kind, asked, ref)
        if as_table(output):
            _print(client, view, [thing], output)
        else:
            print_data(thing, output)


def _documents(client: Client, kind: KindChoice, view: TableView, query: Asked, ref: str | None, limit: int) -> bool:
    """Print documents; False where there are none: GPUs, and nodes of a cluster, were made by no document."""
    if kind.noun not in APPLIED:
        return False
    path, asked, most = "/v1/documents", query | {"kind": kind.noun}, limit if view.told else 0
    if kind.asking and ref is None:
        rows = client.list(view.path, query, most, lambda item: bool(view.rows([item])))
        each = [client.get(path, asked | {"name": row["id"]})["items"] for row in rows.items]
        listing = rows._replace(items=[item for items in each for item in items])
    else:
        if kind.asking and ref is not None:
            _single(client, kind, query, ref)
        listing = client.list(path, asked | {"name": ref}, most)
    newest: dict[tuple[str | None, str], str] = {}
    for item in listing.items:
        newest.setdefault((item.get("group"), item["name"]), item["text"])
    echo("---\n".join(newest.values()), nl=False)
    _note_more(listing, limit)
    return bool(newest)


def _note_more(listing: ListPage, limit: int) -> None:
    if listing.more:
        note(f"The newest {limit} are shown; see all with: --limit 0")


def _single(client: Client, kind: KindChoice, asked: Asked, ref: str) -> Row:
    thing: Row = client.get(f"{PATHS[kind.noun]}/{segment(ref)}", asked)
    check_asking(kind, ref, thing)
    return thing


def named(client: Client, kind: KindChoice, view: TableView, asked: Asked, ref: str) -> list[Row]:
    """Return the items of a list that have this name; none is an error."""
    rows = [row for row in view.rows(client.list(view.path, asked, 0).items) if is_called(row, ref)]
    if not rows:
        noun = kind.noun if kind.pwm else "Node"
        raise NotFound(f"{noun} {ref} not found", hint=f"penstock get {ALIASES[kind.noun][0]}")
    return rows


def _print(client: Client, view: TableView, rows: list[Row], output: str) -> None:
    if as_table(output):
        rows = view.shown(client, rows)
    print_items(rows, output, view.columns(rows), ruled=view.ruled)


def _watch(
    client: Client, kind: KindChoice, view: TableView, asked: Asked, ref: str | None, limit: int, output: str
) -> None:
    """Watch a kind, or the things of one name, which must exist when watching begins."""
    from penstock.cli.ui.watch import watch

    if ref is not None and kind.noun in SINGLE:
        asked = asked | {"name": _single(client, kind, asked, ref)["name"]}
    elif ref is not None:
        named(client, kind, view, asked, ref)

    def rows(items: list[Row]) -> list[Row]:
        found = view.rows(items)
        return found if ref is None else [row for row in found if is_called(row, ref)]

    watch(client, view._replace(rows=rows), asked, limit, output)
