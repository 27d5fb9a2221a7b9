"""`penstock jobs delete`: delete jobs that have ended, with their logs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.completion import job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.confirm import confirmed, each, of_others
from penstock.cli.ui.options import api_url_option, connect, output_option
from penstock.cli.ui.table import Row
from penstock.client.address import segment

PATH = "/v1/workloads"


@command("delete", examples="penstock jobs delete train --force")
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=job_names)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@output_option
@api_url_option()
def delete(refs: Sequence[str], force: bool, output: str, api_url: str | None) -> int:
    """Delete jobs that are over, with their logs. Volumes stay."""
    client = connect(api_url)

    def delete_one(ref: str) -> Row | None:
        job = client.get(f"{PATH}/{segment(ref)}")
        whose = f" of {job['user']}" if not force and of_others(client, [job]) else ""
        if not force and not confirmed(f"Delete task {job['name']} ({job['id']}, {job['status']}){whose} and its log?"):
            return None
        gone: Row = client.delete(f"{PATH}/{job['id']}")
        return gone

    return each(refs, delete_one, output, lambda gone: f"Task {gone['id']} deleted successfully")
