"""`penstock jobs stop` and `penstock jobs delete`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.completion import active_job_names, job_names
from penstock.cli.options import all_users_option, api_url_option, connect
from penstock.cli.tree import command
from penstock.client.address import quote

PATH = "/v1/workloads"


@command(
    "stop",
    examples="""
    penstock jobs stop train
    penstock jobs stop --all""",
)
@click.argument("refs", metavar="[NAME_OR_ID]...", nargs=-1, shell_complete=active_job_names)
@click.option("-a", "--all", "everything", is_flag=True, help="All of yours that are not over.")
@all_users_option("With --all: everyone's (admin).")
@api_url_option()
def stop(refs: Sequence[str], everything: bool, all_users: bool, api_url: str | None) -> None:
    """Stop jobs. They stay listed, with their logs, until they are deleted."""
    if all_users and not everything:
        raise click.UsageError("--all-users needs --all.")
    if everything and refs:
        raise click.UsageError("Name jobs or say --all, not both.")
    if not everything and not refs:
        raise click.UsageError("Name a job, or say --all.")
    client = connect(api_url)
    if everything:
        count = len(client.post(f"{PATH}/stop", query={"all_users": all_users})["items"])
        click.echo(f"Stopped {count} task{'' if count == 1 else 's'}{' for all users' if all_users else ''}")
    for ref in refs:
        job = client.post(f"{PATH}/{quote(ref)}/stop")
        over = job["status"] not in ("pending", "running")
        said = f"is {job['status']}" if over else "is being stopped"
        click.echo(f"Task {job['id']} ({job['name']}) {said}")


@command("delete", examples="penstock jobs delete train --force")
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=job_names)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@api_url_option()
def delete(refs: Sequence[str], force: bool, api_url: str | None) -> None:
    """Delete jobs that are over, with their logs. Volumes stay."""
    from penstock.cli.confirm import confirmed

    client = connect(api_url)
    for ref in refs:
        job = client.get(f"{PATH}/{quote(ref)}")
        if not force and not confirmed(f"Delete task {job['name']} ({job['id']}, {job['status']}) and its log?"):
            click.echo("Cancelled")
            continue
        client.delete(f"{PATH}/{job['id']}")
        click.echo(f"Task {job['id']} deleted successfully")
