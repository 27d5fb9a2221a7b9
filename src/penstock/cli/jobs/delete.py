"""`penstock jobs delete`: delete jobs that have ended, with their logs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.completion import job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.confirm import delete_each
from penstock.cli.ui.options import common_options, connect


@command("delete", examples="penstock jobs delete train --force")
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=job_names)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@common_options()
def delete(refs: Sequence[str], force: bool, output: str) -> int:
    """Delete jobs that are over, with their logs. Volumes stay."""
    return delete_each(
        connect(),
        "/v1/workloads",
        refs,
        lambda job, whose: f"Delete task {job['name']} ({job['id']}, {job['status']}){whose} and its log?",
        force=force,
        output=output,
        say=lambda gone: f"Task {gone['id']} deleted successfully",
    )
