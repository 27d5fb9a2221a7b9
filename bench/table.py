"""One line of the table: what was measured, what it is compared with, the ratio, the goal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    what: str
    measured: float
    unit: str
    goal: str
    met: bool | None
    """None: the goal cannot be judged here; the note says why."""
    beside: float | None = None
    beside_what: str = ""
    note: str = ""
    as_difference: bool = False
    """The goal is so much more, not so many times as much."""


def show(lines: list[Line]) -> str:
    head = ("what", "measured", "beside", "ratio", "goal", "", "compared with")
    rows = [head, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*text, "", *(f"{line.what}: {line.note}" for line in lines if line.note)])


def _cells(line: Line) -> tuple[str, ...]:
    beside = _amount(line.beside, line.unit) if line.beside is not None else "-"
    ratio = f"{line.measured / line.beside:.2f}" if line.beside else "-"
    if line.beside and line.as_difference:
        ratio = f"+{_amount(line.measured - line.beside, line.unit)}"
    verdict = {True: "met", False: "missed", None: "?"}[line.met]
    return (line.what, _amount(line.measured, line.unit), beside, ratio, line.goal, verdict, line.beside_what)


def _amount(value: float, unit: str) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"
