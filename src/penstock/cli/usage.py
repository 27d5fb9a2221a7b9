"""`penstock usage`: show who used how much of the machines."""

from __future__ import annotations

import click

from penstock.cli.ui.command import command
from penstock.cli.ui.options import common_options, connect
from penstock.cli.ui.output import print_items
from penstock.cli.ui.table import Column, Row, field
from penstock.domain.quantities import show_bytes
from penstock.errors import Invalid


@command(
    "usage",
    examples="""
    penstock usage
    penstock usage --since 7d --by group
    penstock usage -g vision --by user -o json""",
)
@click.option("--since", metavar="TIME", default="30d", show_default=True, help="Since then: 30d, 12h, or a time.")
@click.option("--by", type=click.Choice(["user", "group"]), help="One row for each of these. [default: both]")
@click.option("-g", "--group", metavar="GROUP", help="Only of this group. [default: all of yours]")
@common_options()
def usage(since: str, by: str | None, group: str | None, output: str) -> None:
    """Show who used how much: hours of GPUs and CPUs, and how long the GPUs worked.

    It covers your groups; admins see everyone's. Deleted jobs count, too, and running ones up to now.
    """
    client = connect()
    try:
        report = client.get("/v1/usage", {"since": since, "by": by, "group": group})
    except Invalid as error:
        said = [problem for problem in error.problems if problem.get("field") == "since"]
        if not said:
            raise
        raise click.BadParameter(f"{said[0]['message']} ({said[0]['hint']}).", param_hint="--since") from error
    print_items(report["items"], output, usage_columns(by, wide=output == "wide"))


def usage_columns(by: str | None, *, wide: bool) -> list[Column]:
    who = [field(title, key, least=8) for title, key in (("Group", "group"), ("User", "user")) if by in (None, key)]
    columns = [
        *who,
        field("Workloads", "workloads", drop=3),
        Column("GPU Hours", lambda row: _hours(row["gpu_hours"])),
        Column("Used", _used),
        Column("CPU Hours", lambda row: _hours(row["cpu_hours"]), drop=1),
        Column("Peak Memory", _peak, drop=2),
    ]
    if wide:
        columns.insert(len(who) + 3, Column("Measured", lambda row: _hours(row["gpu_hours_measured"]), drop=4))
    return columns


def _hours(hours: float) -> str:
    return f"{hours:,.2f}"


def _used(row: Row) -> str:
    """Write the hours of use, and their share of the measured hours: `12.50 (41%)`."""
    used, measured = row.get("gpu_hours_used"), row.get("gpu_hours_measured")
    if used is None:
        return "-"
    return f"{_hours(used)} ({used / measured:.0%})" if measured else _hours(used)


def _peak(row: Row) -> str:
    peak = row.get("peak_memory_bytes")
    return "-" if peak is None else show_bytes(peak)
