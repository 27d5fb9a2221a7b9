"""`penstock jobs wait`: wait until jobs reach a state."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import click

from penstock.cli.completion import active_job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.follow import Job, ending, exit_code, goes_on, is_over, wait_for_end
from penstock.cli.ui.options import common_options, connect
from penstock.cli.ui.output import as_table, note, print_data
from penstock.client.address import segment
from penstock.client.retry import ServerWait


@command(
    "wait",
    passes_code=True,
    examples="""
    penstock jobs wait train && echo trained
    penstock jobs wait train evaluate --timeout 2h""",
)
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=active_job_names)
@click.option("--timeout", metavar="DURATION", help="Give up after this long, such as 30m.")
@common_options(short=True)
def wait(refs: Sequence[str], timeout: str | None, output: str) -> int:
    """Wait until jobs have ended.

    The exit code is the job's own, or 1 if it did not run to an end of its own or is not over in time; of several
    jobs, that of the first named one that did not complete. Ctrl-C stops waiting, with exit code 130.
    """
    deadline = None if timeout is None else monotonic() + _seconds(timeout)
    client = connect()
    jobs = [client.get(f"/v1/workloads/{segment(ref)}") for ref in refs]
    patience = ServerWait(client, note)
    codes: list[int] = []
    try:
        for place, job in enumerate(jobs):
            jobs[place] = wait_for_end(client, patience, job["id"], deadline)
            codes.append(_tell(jobs[place], timeout))
    except KeyboardInterrupt:
        goes_on(next((job for job in jobs if not is_over(job)), jobs[-1])["id"])
        return 130
    if not as_table(output):
        print_data(jobs if len(jobs) > 1 else jobs[0], output)
    return next((code for code in codes if code), 0)


def _tell(job: Job, timeout: str | None) -> int:
    """Say how a job ended, or that it did not in time, and return its exit code."""
    if not is_over(job):
        note(f"Task {job['id']} ({job['name']}) is still {job['status']} after {timeout}.")
        return 1
    note(ending(job))
    return exit_code(job)


def _seconds(timeout: str) -> int:
    from penstock.domain.quantities import NotAQuantity, parse_duration

    try:
        return parse_duration(timeout)
    except NotAQuantity as error:
        raise click.BadParameter(f"{error}; {error.hint}.", param_hint="--timeout") from error
