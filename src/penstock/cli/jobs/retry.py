"""`penstock jobs retry`: start another attempt of a job that has ended."""

from __future__ import annotations

from collections.abc import Sequence

import click

from penstock.cli.completion import job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.confirm import each
from penstock.cli.ui.options import common_options, connect
from penstock.client.address import segment


@command(
    "retry",
    examples="""
    penstock jobs retry train
    penstock jobs retry sweep --index 3 --index 7""",
)
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=job_names)
@click.option("--index", "indexes", type=click.IntRange(0), multiple=True, metavar="N", help="Only this index.")
@common_options()
def retry(refs: Sequence[str], indexes: Sequence[int], output: str) -> int:
    """Start another attempt of jobs that failed or were stopped; of an array, only what did not complete."""
    client = connect()
    body = {"indexes": list(indexes)} if indexes else {}
    return each(
        refs,
        lambda ref: client.post(f"/v1/workloads/{segment(ref)}/retry", body, create=True),
        output,
        lambda job: f"Task {job['id']} ({job['name']}) is {job['status']}, attempt {job['attempt']}",
    )
