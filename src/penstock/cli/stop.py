"""`penstock stop`: stop workloads; they stay listed."""

from __future__ import annotations

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.jobs.stop import stop_each
from penstock.cli.ui.command import command
from penstock.cli.ui.documents import documents_body, optional_file, show_results, thing_or_file
from penstock.cli.ui.kinds import KindParam, asked_for, one_thing
from penstock.cli.ui.options import api_url_option, connect, group_option, output_option
from penstock.client.api import FILE_SECONDS


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
def stop(words: tuple[str, ...], file: str | None, group: str | None, output: str, yes: bool) -> int:
    """Stop a workload, or those a file describes. It asks before stopping somebody else's workload by name.

    They stay listed, with their logs, until they are deleted. One that has not started yet is stopped at once.
    """
    thing_or_file("workload", words, file)
    client = connect()
    if file is not None:
        answer = client.post("/v1/stop", documents_body(file), {"group": group}, timeout=FILE_SECONDS)
        return show_results(answer["results"], output)
    kind, ref = one_thing(words, KindParam("Workload"))
    return stop_each(client, [asked_for(client, kind, ref, group)], yes, output, group)
