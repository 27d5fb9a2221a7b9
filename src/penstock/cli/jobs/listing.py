"""`penstock jobs list`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.options import connect, list_options
from penstock.cli.output import Column, Row, field, moment, note, print_items
from penstock.cli.tree import command

PATH = "/v1/workloads"


@command(
    "list",
    examples="""
    penstock jobs list
    penstock jobs list --status pending,running --watch
    penstock jobs list -o json --limit 0""",
)
@list_options
def list_jobs(
    details: bool,
    all_users: bool,
    status: str | None,
    name: str | None,
    limit: int,
    watch: bool,
    output: str,
    api_url: str | None,
) -> None:
    """List jobs, newest first; a job that waits says why."""
    client = connect(api_url)
    query = {"status": status, "name": name, "all_users": all_users}

    def columns(items: Sequence[Row]) -> list[Column]:
        return job_columns(items, details=details, all_users=all_users, wide=output == "wide")

    if watch:
        from penstock.cli.watch import watch as follow

        follow(client, PATH, query, limit, output, columns)
    listing = client.list(PATH, query, limit)
    if output in ("table", "wide") and not listing.items:
        click.echo("No tasks found")
        return
    print_items(listing.items, output, columns(listing.items))
    if output in ("table", "wide"):
        click.echo(f"\nTotal tasks: {len(listing.items)}")
    if listing.more:
        note(f"These are the newest {len(listing.items)}; see all with: --limit 0")


def job_columns(items: Sequence[Row], *, details: bool, all_users: bool, wide: bool) -> list[Column]:
    columns = [
        field("Task ID", "id"),
        field("Name", "name"),
        field("Status", "status"),
        moment("Created", "created_at"),
    ]
    if all_users:
        columns.append(field("User", "user"))
    if details or wide:
        columns += [Column("Job Name", lambda row: f"{row['name']}-{row['id']}"), field("Namespace", "group")]
    if wide:
        columns += [field("Nodes", "nodes"), field("CPUs", "cpus"), field("Memory", "memory")]
        columns += [field("GPUs", "accelerators"), moment("Started", "started_at"), moment("Ended", "ended_at")]
    if details or wide:
        columns.append(Column("Reason", why))
    elif any(waits(row) for row in items):
        columns.append(Column("Reason", lambda row: why(row) if waits(row) else "", optional=True))
    return columns


def waits(row: Row) -> bool:
    return row["status"] == "pending" and bool(row.get("message"))


def why(row: Row) -> str:
    """The person's sentence where there is one, else the reason's word."""
    return row.get("message") or row.get("reason") or "-"
