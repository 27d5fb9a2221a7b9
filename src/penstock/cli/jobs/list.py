"""`penstock jobs list`: list jobs with their states and places in the queue."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.ui.command import command
from penstock.cli.ui.options import ListOptions, connect, list_options
from penstock.cli.ui.output import show_list
from penstock.cli.ui.table import NAME, Column, Row, field, moment

EXPLAINED = ("pending", "failed", "unknown")
REASON = 32
"""Width of a reason before other columns are dropped for it."""


@command(
    "list",
    examples="""
    penstock jobs list
    penstock jobs list --status pending,running --watch
    penstock jobs list -o json --limit 0""",
)
@list_options
def list_jobs(asked: ListOptions) -> None:
    """List jobs, newest first; a job that waits or failed says why."""

    def columns(items: Sequence[Row] | None) -> list[Column]:
        return job_columns(items, details=asked.details, all_users=asked.all_users, wide=asked.output == "wide")

    show_list(connect(), "/v1/workloads", asked, columns, "tasks")


def job_columns(items: Sequence[Row] | None, *, details: bool, all_users: bool, wide: bool) -> list[Column]:
    """Return the columns for these items; None if the items are not known yet."""
    columns = [
        field("Task ID", "id"),
        field("Name", "name", least=NAME),
        field("Status", "status"),
        moment("Created", "created_at", drop=5),
    ]
    if all_users:
        columns.append(field("User", "user", least=16))
    if details or wide:
        columns.append(Column("Job Name", lambda row: f"{row['name']}-{row['id']}", drop=9))
        columns.append(Column("Namespace", lambda row: row.get("namespace") or row["group"], drop=8))
    if wide:
        columns += [Column("Nodes", _nodes, drop=2), field("CPUs", "cpus", drop=4), field("Memory", "memory", drop=3)]
        columns.append(field("GPUs", "accelerators", drop=2, least=12))
        columns += [moment("Started", "started_at", drop=6), moment("Ended", "ended_at", drop=7)]
    if items is None or any(row.get("ahead") for row in items):
        columns.append(field("Ahead", "ahead"))
    if details or wide:
        columns.append(Column("Reason", why, drop=1, least=REASON))
    elif items is None or any(is_explained(row) for row in items):
        columns.append(Column("Reason", lambda row: why(row) if is_explained(row) else "", drop=1, least=REASON))
    return columns


def _nodes(row: Row) -> str:
    """Return the number of nodes; for an array, how many indexes are done."""
    array = row.get("array")
    return f"{array['completed']}/{array['count']}" if array else str(row.get("nodes", "-"))


def is_explained(row: Row) -> bool:
    return row["status"] in EXPLAINED and bool(row.get("message"))


def why(row: Row) -> str:
    return row.get("message") or row.get("reason") or "-"
