"""`penstock jobs logs`: print or follow the log of a job."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from penstock.cli.completion import job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.follow import Log, goes_on
from penstock.cli.ui.options import Function, all_of, api_url_option, connect
from penstock.cli.ui.output import note
from penstock.cli.ui.table import Row
from penstock.client.address import segment
from penstock.client.retry import ServerWait

TAIL = click.IntRange(0, 1_000_000)


def log_options(function: Function) -> Function:
    newer = "Only lines newer than this: 10m, 2h, or 2026-11-15T21:31:15 (UTC)."
    return all_of(
        function,
        click.option("--tail", type=TAIL, metavar="N", help="Only the last N lines."),
        click.option("--since", metavar="TIME", help=newer),
        click.option("-f", "--follow/--no-follow", default=None, help="Keep printing until the job ends."),
        click.option("--node", type=click.IntRange(0), metavar="N", help="Only this node."),
        click.option("--index", type=click.IntRange(0), metavar="N", help="Only this index of an array."),
        click.option("--attempt", type=click.IntRange(1), metavar="N", help="Only this attempt."),
        api_url_option(short=True),
    )


@command(
    "logs",
    examples="""
    penstock jobs logs train
    penstock jobs logs sweep --index 3
    penstock jobs logs train --tail 20 --no-follow
    penstock jobs logs train --since 10m --node 1""",
)
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=job_names)
@log_options
def logs(ref: str, follow: bool | None, **asked: Any) -> None:
    """Show what a job prints, until it ends.

    Ctrl-C stops following, not the job; the exit code is then 0.
    """
    show_log(ref, follow=follow is not False, **asked)


def show_log(
    ref: str,
    *,
    follow: bool,
    since: str | None,
    group: str | None = None,
    check: Callable[[Row], None] = lambda job: None,
    **part: int | None,
) -> None:
    query = {**part, "since": _moment(since), "group": group}
    client = connect()
    job = client.get(f"/v1/workloads/{segment(ref)}", {"group": group})
    check(job)
    log = Log(client, ServerWait(client, note), job, query)
    if not follow:
        log.show()
        return
    try:
        log.follow()
    except KeyboardInterrupt:
        goes_on(ref)


def _moment(since: str | None) -> str | None:
    """Return a duration back from now, or a time, as ISO in UTC."""
    if since is None:
        return None
    from datetime import UTC, datetime, timedelta

    from penstock.domain.quantities import NotAQuantity, parse_duration

    try:
        if re.fullmatch(r"[0-9]+[dhms].*", since):
            return (datetime.now(UTC) - timedelta(seconds=parse_duration(since))).isoformat()
        moment = datetime.fromisoformat(since)
    except (NotAQuantity, ValueError, OverflowError) as error:
        reason = f"'{since}' is not a duration (10m, 2h) or a time (2026-11-15T21:31:15)."
        raise click.BadParameter(reason, param_hint="--since") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
