"""`penstock jobs stop`: stop jobs by name, or all of one's own."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.completion import active_job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.confirm import confirmed, each, of_others
from penstock.cli.ui.follow import is_over
from penstock.cli.ui.options import all_users_option, common_options, connect
from penstock.cli.ui.output import cancelled, plural, print_result
from penstock.cli.ui.table import Row
from penstock.client.address import segment
from penstock.client.api import Client

PATH = "/v1/workloads"


@command(
    "stop",
    examples="""
    penstock jobs stop train
    penstock jobs stop --all
    penstock jobs stop --all --all-users --yes""",
)
@click.argument("refs", metavar="[NAME_OR_ID]...", nargs=-1, shell_complete=active_job_names)
@click.option("-a", "--all", "everything", is_flag=True, help="All of your active jobs.")
@all_users_option("With --all: everyone's (admin).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before stopping other people's jobs.")
@common_options()
def stop(refs: Sequence[str], everything: bool, all_users: bool, yes: bool, output: str) -> int:
    """Stop jobs. They stay listed, with their logs, until they are deleted.

    Before it stops other people's jobs it asks, and says how many belong to whom.
    """
    if all_users and not everything:
        raise click.UsageError("--all-users needs --all.")
    if everything and refs:
        raise click.UsageError("Name jobs or use --all, not both.")
    if not everything and not refs:
        raise click.UsageError("Name a job, or use --all.")
    client = connect()
    if not everything:
        return stop_each(client, refs, yes, output)
    if all_users and not yes and not _agreed(client):
        cancelled(output)
        return 0
    stopped = client.post(f"{PATH}/stop", query={"all_users": all_users})["items"]
    whose = " for all users" if all_users else ""
    print_result(stopped, output, f"Stopped {plural(len(stopped), 'task')}{whose}")
    return 0


def _agreed(client: Client) -> bool:
    jobs = client.list(PATH, {"all_users": True, "status": "pending,running"}, 0).items
    whose = of_others(client, jobs)
    return whose is None or confirmed(f"Stop {plural(len(jobs), 'job')} {whose}?", "--yes")


def stop_each(client: Client, refs: Sequence[str], yes: bool, output: str, group: str | None = None) -> int:
    """Stop jobs; unless `yes`, ask before somebody else's."""

    def stop_one(ref: str) -> Row | None:
        if not yes:
            job = client.get(f"{PATH}/{segment(ref)}", {"group": group})
            question = f"Stop job {job['name']} ({job['id']}) of {job['user']}?"
            if of_others(client, [job]) and not confirmed(question, "--yes"):
                return None
            ref = job["id"]
        stopped: Row = client.post(f"{PATH}/{segment(ref)}/stop", query={"group": group})
        return stopped

    return each(refs, stop_one, output, _becomes)


def _becomes(job: Row) -> str:
    return f"Task {job['id']} ({job['name']}) is {job['status'] if is_over(job) else 'being stopped'}"
