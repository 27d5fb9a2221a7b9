"""`penstock inspect`: show what the engine knows of a workload, in the engine's own words."""

from __future__ import annotations

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.ui.command import command
from penstock.cli.ui.kinds import one_workload
from penstock.cli.ui.options import api_url_option, group_option
from penstock.cli.ui.output import print_data


@command(
    "inspect",
    examples="""
    penstock inspect wk first-test -g your-group
    penstock inspect train -o yaml""",
)
@click.argument("words", metavar="[KIND] NAME_OR_ID", nargs=-1, required=True, shell_complete=kinds_and_names)
@group_option
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default="json", show_default=True, help="As what.")
@api_url_option(short=True)
def inspect(words: tuple[str, ...], group: str | None, output: str) -> None:
    """Show what the engine knows of a workload: containers, mounts, limits, variables.

    Values that look secret are masked.
    """
    client, path = one_workload(words, group)
    print_data(client.get(f"{path}/inspect", {"group": group}), output)
