"""`penstock jobs wait`."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import click

from penstock.cli.completion import active_job_names
from penstock.cli.jobs.follow import ACTIVE, ending, exit_code, wait_for_end
from penstock.cli.options import api_url_option, connect, output_option
from penstock.cli.output import note, print_data
from penstock.cli.tree import command
from penstock.client.address import quote


@command(
    "wait",
    examples="""
    penstock jobs wait train && echo trained
    penstock jobs wait train evaluate --timeout 2h""",
)
@click.argument("refs", metavar="NAME_OR_ID...", nargs=-1, required=True, shell_complete=active_job_names)
@click.option("--timeout", metavar="DURATION", help="Give up after this long, such as 30m.")
@output_option
@api_url_option(short=True)
def wait(refs: Sequence[str], timeout: str | None, output: str, api_url: str | None) -> int:
    """Wait until jobs have ended.

    The exit code is the job's own, or 1 if it did not run to an end of its own or is not over in time; of several
    jobs, that of the first named one that did not complete.
    """
    client = connect(api_url)
    deadline = None if timeout is None else monotonic() + _seconds(timeout)
    codes, jobs = [], []
    for ref in refs:
        job = wait_for_end(client, quote(ref), deadline)
        late = job["status"] in ACTIVE
        note(f"Task {job['id']} ({job['name']}) is still {job['status']} after {timeout}." if late else ending(job))
        codes.append(1 if late else exit_code(job))
        jobs.append(job)
    if output not in ("table", "wide"):
        print_data(jobs if len(jobs) > 1 else jobs[0], output)
    return next((code for code in codes if code), 0)


def _seconds(timeout: str) -> int:
    from penstock.domain.quantities import NotAQuantity, parse_duration

    try:
        return parse_duration(timeout)
    except NotAQuantity as error:
        raise click.BadParameter(f"{error}; {error.hint}.", param_hint="--timeout") from error
