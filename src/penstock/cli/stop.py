"""`penstock stop`: stop workloads; they stay listed."""

from __future__ import annotations

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.jobs.stop import becomes
from penstock.cli.ui.command import command
from penstock.cli.ui.confirm import each, stop_agreed
from penstock.cli.ui.documents import documents_body, optional_file, show_results, thing_or_file
from penstock.cli.ui.kinds import KindParam, asked_for, one_thing
from penstock.cli.ui.options import api_url_option, connect, group_option, output_option
from penstock.cli.ui.table import Row
from penstock.client.address import segment
from penstock.client.api import FILE_SECONDS

KINDS = KindParam("Workload")


@command(
    "stop",
    examples="""
    penstock stop -f example.yaml
    penstock stop wk first-test
    penstock stop train""",
)
@click.argument("words", metavar="[KIND] [NAME_OR_ID]", nargs=-1, shell_complete=kinds_and_names)
@optional_file
@group_option
@output_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask before stopping somebody else's.")
@api_url_option(short=True)
def stop(
    words: tuple[str, ...], file: str | None, group: str | None, output: str, yes: bool, api_url: str | None
) -> int:
    """Stop a workload, or those a file describes. It asks before stopping somebody else's workload by name.

    They stay listed, with their logs, until they are deleted. One that has not started yet is stopped at once.
    """
    thing_or_file("workload", words, file)
    client = connect(api_url)
    if file is not None:
        answer = client.post("/v1/stop", documents_body(file), {"group": group}, timeout=FILE_SECONDS)
        return show_results(answer["results"], output)
    kind, ref = one_thing(words, KINDS)
    path = f"/v1/workloads/{segment(asked_for(client, kind, ref, group))}"

    def stop_one(_: str) -> Row | None:
        if not yes and not stop_agreed(client, client.get(path, {"group": group})):
            return None
        stopped: Row = client.post(f"{path}/stop", query={"group": group})
        return stopped

    return each([ref], stop_one, output, becomes)
