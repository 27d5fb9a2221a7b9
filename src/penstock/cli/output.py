"""What is printed: tables that fit the terminal, or the API's own JSON. Data to stdout, words to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

Row = dict[str, Any]
GAP = "  "
NARROWEST = 8
"""Below this a shortened column says nothing."""

COLOURS = {
    "running": "green",
    "Bound": "green",
    "ok": "green",
    "completed": "cyan",
    "pending": "yellow",
    "Pending": "yellow",
    "stopped": "yellow",
    "advisory": "yellow",
    "Deleting": "yellow",
    "failed": "red",
    "unknown": "red",
    "Lost": "red",
    "missing": "red",
}


class Column(NamedTuple):
    title: str
    value: Callable[[Row], str]
    optional: bool = False
    """Left out where the terminal has no room for it; width 0 says so."""


def field(title: str, key: str) -> Column:
    return Column(title, lambda row: _word(row.get(key)))


def moment(title: str, key: str) -> Column:
    """A time as document 001 shows it: to the second, UTC."""
    return Column(title, lambda row: short_time(row.get(key)))


def short_time(text: str | None) -> str:
    return text[:19] if text else "-"


def _word(value: Any) -> str:
    return "-" if value is None or value == "" else str(value)


def note(text: str) -> None:
    """A word to the person, beside the data."""
    click.echo(text, err=True)


def print_items(items: Sequence[Row], output: str, columns: Sequence[Column]) -> None:
    if output in ("table", "wide"):
        click.echo("\n".join(table(items, columns)))
    else:
        print_data(list(items), output)


def print_data(data: Any, output: str) -> None:
    """The API's JSON, the same as YAML, or the ids alone, which every command takes."""
    if output == "json":
        import json

        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
    else:
        for item in data if isinstance(data, list) else [data]:
            click.echo(item.get("id") or item["name"])


def table(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Header and rows, as wide as the terminal at most; where there is no terminal, as wide as they are."""
    cells = [[column.title, *(_printable(column.value(row)) for row in rows)] for column in columns]
    widths = _fit(columns, [max(map(len, column)) for column in cells], terminal_width())
    shown = [place for place, width in enumerate(widths) if width]
    return [_line([(cells[place][index], widths[place]) for place in shown]) for index in range(len(rows) + 1)]


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _fit(columns: Sequence[Column], widths: list[int], room: int | None) -> list[int]:
    """Shorten the widest columns until all fit; where that would leave nothing of them, leave the optional ones out."""
    if room is None:
        return widths
    floors = [min(width, max(NARROWEST, len(column.title))) for width, column in zip(widths, columns, strict=True)]
    if _total(floors) > room:
        widths = [0 if column.optional else width for width, column in zip(widths, columns, strict=True)]
    while _total(widths) > room and (over := [place for place, width in enumerate(widths) if width > floors[place]]):
        widths[max(over, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: list[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + len(GAP) * (len(shown) - 1)


def _line(cells: list[tuple[str, int]]) -> str:
    parts = []
    for text, width in cells:
        short = text if len(text) <= width else text[: width - 1] + "…"
        parts.append(coloured(short) + " " * (width - len(short)))
    return GAP.join(parts).rstrip()


def coloured(text: str) -> str:
    colour = COLOURS.get(text)
    return click.style(text, fg=colour) if colour and use_colour() else text


def use_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """None where nothing is to be shortened, because a program reads it."""
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"]) or None
    return os.get_terminal_size(1).columns or None if sys.stdout.isatty() else None


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """`Name:  value` lines, the values aligned."""
    width = max(len(name) for name, _ in facts) + 1
    for name, value in facts:
        click.echo(f"{name + ':':<{width}}{GAP}{coloured(_printable(value))}")
