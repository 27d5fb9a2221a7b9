"""`penstock logs`: PWM's spelling of `penstock jobs logs`."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.jobs.logs import log_options, show_log
from penstock.cli.ui.command import command
from penstock.cli.ui.kinds import KindParam, check_asking, one_thing, speaks_pwm
from penstock.cli.ui.options import group_option


@command(
    "logs",
    examples="""
    penstock logs wk first-test -g your-group
    penstock logs train --index 3
    penstock logs train --tail 20 --follow""",
)
@click.argument("words", metavar="[KIND] NAME_OR_ID", nargs=-1, required=True, shell_complete=kinds_and_names)
@group_option
@log_options
def logs(words: tuple[str, ...], group: str | None, follow: bool | None, **asked: Any) -> None:
    """Show what a workload prints.

    penstock follows the log until the workload ends, pwmcli prints what there is; --follow and --no-follow choose.
    Ctrl-C stops following, not the workload; the exit code is then 0.
    """
    kind, ref = one_thing(words, KindParam("Workload"))
    if follow is None:
        follow = not speaks_pwm(click.get_current_context())
    show_log(ref, group=group, follow=follow, check=lambda job: check_asking(kind, ref, job), **asked)
