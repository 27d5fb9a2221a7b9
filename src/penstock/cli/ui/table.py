"""Tables that fit the terminal: columns are dropped before a cell is cut, and a row never takes two lines."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

Row = dict[str, Any]
GAP = "  "
NARROWEST = 8
"""A column cut below this is useless."""
NAME = 24
"""Width of a name before other columns are dropped for it."""
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys instead of showing it: control characters but for tab and end of line, and those that turn the
direction of the text. Half a character (a surrogate) cannot be written at all."""
USUAL = {"id": 8, "name": NAME, "status": 9, "size": 5}

COLOURS = {
    "running": "green",
    "RUNNING": "green",
    "READY": "green",
    "Bound": "green",
    "ok": "green",
    "completed": "cyan",
    "EXITED": "cyan",
    "pending": "yellow",
    "Pending": "yellow",
    "stopped": "yellow",
    "STOPPED": "yellow",
    "QUEUED": "yellow",
    "DENIED": "yellow",
    "MAINTENANCE": "yellow",
    "advisory": "yellow",
    "Deleting": "yellow",
    "failed": "red",
    "CRASHED": "red",
    "STUCK": "red",
    "UNKNOWN": "red",
    "NOT_READY": "red",
    "unknown": "red",
    "Lost": "red",
    "missing": "red",
}


class Column(NamedTuple):
    """A column and how much width it may lose: by default none, since ids, statuses and times are useless when cut."""

    title: str
    value: Callable[[Row], str]
    drop: int = 0
    """The order of dropping where the terminal has no room: the highest first, 0 never."""
    least: int | None = None
    """The width it may be cut to before other columns are left out; None: never cut."""
    wrap: bool = False
    """The text continues on the next line instead of being cut; for the last column."""
    usual: int = 0
    """The minimum width if more rows come later."""


def field(title: str, key: str, *, drop: int = 0, least: int | None = None, wrap: bool = False) -> Column:
    return Column(title, lambda row: _word(row.get(key)), drop, least, wrap, USUAL.get(key, 0))


def constant(title: str, text: str, *, drop: int = 0) -> Column:
    return Column(title, lambda _: text, drop)


def moment(title: str, key: str, *, drop: int = 0) -> Column:
    """Make a column of times as k8s-cli shows them: to the second, UTC."""
    return Column(title, lambda row: short_time(row.get(key)), drop, usual=19)


def short_time(text: str | None) -> str:
    return text[:19] if text else "-"


def message_with_place(row: Row) -> str | None:
    """Return why a job waits and how many wait before it: `needs 2 CPUs; 0 of 2 are free (1 ahead in the queue)`."""
    message, ahead = row.get("message"), row.get("ahead")
    return f"{message} ({ahead} ahead in the queue)" if message and ahead else message


def _word(value: Any) -> str:
    return "-" if value is None or value == "" else str(value)


def settled(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """Fix the columns at the width these rows need, for rows that come later."""
    return [
        column._replace(usual=max(column.usual, len(column.title), *map(_length, _cells(column, rows))))
        if rows and not column.wrap
        else column
        for column in columns
    ]


def table(
    rows: Sequence[Row], columns: Sequence[Column], *, indent: int = 0, more_come: bool = False, ruled: bool = False
) -> list[str]:
    """Return header and rows, at most as wide as the terminal; without one, as wide as they are."""
    lines = [line for lines in blocks(rows, columns, indent=indent, more_come=more_come) for line in lines]
    return [lines[0], "-" * max(map(_seen, lines)), *lines[1:]] if ruled else lines


def blocks(
    rows: Sequence[Row], columns: Sequence[Column], *, indent: int = 0, more_come: bool = False
) -> list[list[str]]:
    """Return the table with the lines of each row together."""
    cells = [[column.title, *_cells(column, rows)] for column in columns]
    widths = [
        max(column.usual if more_come else 0, *map(_length if column.wrap else len, cell))
        for column, cell in zip(columns, cells, strict=True)
    ]
    room = terminal_width()
    shown = list(range(len(columns)))
    if room is not None:
        shown, widths = _fit(columns, widths, room - indent)
    if not any(columns[place].wrap for place in shown):
        filled = [_filled(cells[place], widths[place]) for place in shown]
        return [[GAP.join(row).rstrip()] for row in zip(*filled, strict=True)]
    return [
        _lines([(cells[place][index], widths[place], columns[place].wrap) for place in shown])
        for index in range(len(rows) + 1)
    ]


def _cells(column: Column, rows: Sequence[Row]) -> list[str]:
    texts = [column.value(row) for row in rows]
    if column.wrap:
        return ["\n".join(map(printable, text.splitlines())) for text in texts]
    return [text if text.isprintable() else printable(text) for text in texts]


def _length(text: str) -> int:
    return len(text) if "\n" not in text else max(map(len, text.splitlines()))


def _seen(line: str) -> int:
    """Return the width of a line without its colours."""
    return len(click.unstyle(line) if "\x1b" in line else line)


def clean(text: str) -> str:
    """Make text safe for a terminal: control characters are shown as escapes such as `\\x1b`."""
    return text if text.isascii() and text.isprintable() else UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def printable(text: str) -> str:
    """Return text as one safe line: other characters without a shape become blanks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in clean(text))


def _fit(columns: Sequence[Column], widths: list[int], room: int) -> tuple[list[int], list[int]]:
    """Choose columns and widths: first columns are dropped, then long texts are cut."""
    shown = list(range(len(columns)))
    floors = [
        width if column.least is None else min(width, max(column.least, len(column.title)))
        for width, column in zip(widths, columns, strict=True)
    ]
    while _total(floors, shown) > room and (spare := [place for place in shown if columns[place].drop]):
        shown.remove(max(spare, key=lambda place: columns[place].drop))
    last_resort = [min(floor, NARROWEST) for floor in floors]
    for lowest in (floors, last_resort):
        while _total(widths, shown) > room and (over := [place for place in shown if widths[place] > lowest[place]]):
            widths[max(over, key=lambda place: (columns[place].least is not None, widths[place]))] -= 1
    return shown, widths


def _total(widths: list[int], shown: list[int]) -> int:
    return sum(widths[place] for place in shown) + len(GAP) * (len(shown) - 1)


def _filled(cells: list[str], width: int) -> list[str]:
    """Pad and cut a whole column at once: there may be thousands of rows."""
    short = [text if len(text) <= width else text[: width - 1] + "…" for text in cells]
    if use_colour():
        return [coloured(text) + " " * (width - len(text)) for text in short]
    return [text.ljust(width) for text in short]


def _lines(cells: list[tuple[str, int, bool]]) -> list[str]:
    """Return the lines of one row; several if its last cell continues."""
    parts, further = [], []
    for text, width, wrap in cells:
        short = text if len(text) <= width else text[: width - 1] + "…"
        if wrap and (len(text) > width or "\n" in text):
            short, *further = wrapped(text, width)
        parts.append(coloured(short) + " " * (width - len(short)))
    first = GAP.join(parts).rstrip()
    if not further:
        return [first]
    before = " " * (sum(width for _, width, _ in cells[:-1]) + len(GAP) * (len(cells) - 1))
    return [first, *(before + line for line in further)]


def wrapped(text: str, width: int | None) -> list[str]:
    """Wrap text at blanks; words are kept whole, so that a path or a command can be copied."""
    if width is None:
        return text.splitlines() or [""]
    from textwrap import wrap

    lines = [
        line for part in text.splitlines() for line in wrap(part, width, break_long_words=False, break_on_hyphens=False)
    ]
    return lines or [""]


def coloured(text: str) -> str:
    colour = COLOURS.get(text)
    return click.style(text, fg=colour) if colour and use_colour() else text


def use_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """Return the width; None if a program reads the output and nothing is to be shortened."""
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"]) or None
    return os.get_terminal_size(1).columns or None if sys.stdout.isatty() else None
