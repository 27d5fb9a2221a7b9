"""Print a table or the API's own JSON and YAML. Data goes to stdout, messages to stderr.

Everything a command prints goes through here, because most of it was written by somebody else: on a terminal it must be
text and nothing more. Only logs and what a program in a job prints are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.ui.table import GAP, UNSAFE, Column, Row, clean, coloured, printable, table
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.ui.options import ListOptions
    from penstock.client.api import Client, ListPage, Query

Columns = Callable[[Sequence[Row] | None], list[Column]]
"""The columns for these rows; for None, all that any row may need."""


def echo(text: str = "", *, nl: bool = True) -> None:
    click.echo(clean(text), nl=nl)


def echo_styled(text: str) -> None:
    """Print text with our own colours; everything in it from elsewhere must be clean, as a table's cells are."""
    click.echo(text)


def note(text: str) -> None:
    click.echo(clean(text), err=True)


def show_error(error: PenstockError) -> None:
    note(f"Error: {error.message}")
    for problem in error.problems:
        note(f"  {problem}")
    show_hint(error)


def show_hint(error: PenstockError) -> None:
    for line in (error.hint or "").splitlines():
        note(f"Hint: {line}")


def as_table(output: str) -> bool:
    """Tell whether the output is for people; else it is data for programs."""
    return output in ("table", "wide")


def show_list(client: Client, path: str, asked: ListOptions, columns: Columns, noun: str, **more: bool) -> None:
    """List what is at a path and how many there are, or go on showing what changes there."""
    query: Query = {"status": asked.status, "name": asked.name, "all_users": asked.all_users, **more}
    limit, output = asked.limit, asked.output
    if asked.watch:
        from penstock.cli.ui.kinds import TableView
        from penstock.cli.ui.watch import watch as follow

        follow(client, TableView(path, columns, told=True), query, limit, output)
        return
    listing = client.list(path, query, limit)
    print_items(listing.items, output, columns(listing.items), noun=noun)
    if listing.items:
        print_total(noun, listing, output)


def print_items(
    items: Sequence[Row], output: str, columns: Sequence[Column], *, noun: str | None = None, ruled: bool = False
) -> None:
    """Print a table or the data; with a `noun`, a table without rows is one sentence instead."""
    if not as_table(output):
        print_data(list(items), output)
    elif noun and not items:
        echo(f"No {noun} found")
    else:
        echo_styled("\n".join(table(items, columns, ruled=ruled)))


def print_result(result: Any, output: str, text: str) -> None:
    """Say what was done, or print what came of it."""
    if as_table(output):
        echo(text)
    else:
        print_data(result, output)


def cancelled(output: str) -> None:
    """Say that nothing was done, where it does not mix with data."""
    if as_table(output):
        echo("Cancelled")
    else:
        note("Cancelled")


def show_notices(answer: Row) -> None:
    for notice in answer.get("notices") or ():
        note(f"Note: {notice}")


def plural(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def print_data(data: Any, output: str) -> None:
    """Print the API's JSON, the same as YAML, or the ids alone, which every command takes."""
    if output == "json":
        echo(as_json(data, indent=2))
    elif output == "yaml":
        echo(as_yaml(data), nl=False)
    else:
        for item in data if isinstance(data, list) else [data]:
            echo(item.get("id") or item["name"])


def as_json(data: Any, indent: int | None = None) -> str:
    """Return JSON with escapes such as `\\u009b` for characters that a terminal would obey."""
    import json

    return _escaped(json.dumps(data, indent=indent, ensure_ascii=False))


def as_yaml(data: Any) -> str:
    """Write YAML, with escapes for characters that a terminal would obey.

    Text that YAML 1.2 would read as a number is quoted, which PyYAML (1.1) omits.
    """
    import re

    import yaml

    number = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+")

    class DataDumper(yaml.SafeDumper):
        """SafeDumper with our way of writing text."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if UNSAFE.search(text) else "'" if number.fullmatch(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    DataDumper.add_representer(str, represent)
    return _escaped(yaml.dump(data, Dumper=DataDumper, sort_keys=False, allow_unicode=True))


def _escaped(text: str) -> str:
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_total(noun: str, listing: ListPage, output: str) -> None:
    """Print how many there are, and whether there are more than were asked for."""
    count = len(listing.items)
    if as_table(output):
        echo(f"\nTotal {noun}: {count}{' (more with --limit 0)' if listing.more else ''}")
    elif listing.more:
        note(f"These are the newest {count}; see all with: --limit 0")


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print aligned `Name:  value` lines; a fact without a name continues the value above."""
    width = max(len(name) for name, _ in facts) + 1
    for name, value in facts:
        echo_styled(f"{name and name + ':':<{width}}{GAP}{coloured(printable(value))}")
