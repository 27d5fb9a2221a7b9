"""`penstock stop`: end what runs; it stays listed."""

from __future__ import annotations

import click

from penstock.cli.batch import documents_body, optional_file, show_results, thing_or_file
from penstock.cli.completion import kinds_and_names
from penstock.cli.each import each
from penstock.cli.jobs.stop import becomes
from penstock.cli.kinds import KindWord, one_thing
from penstock.cli.options import api_url_option, connect, group_option, output_option
from penstock.cli.tree import command
from penstock.cli.views import asked_for
from penstock.client.address import segment
from penstock.client.api import FILE_SECONDS

KINDS = KindWord("Workload")


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
@api_url_option(short=True)
def stop(words: tuple[str, ...], file: str | None, group: str | None, output: str, api_url: str | None) -> int:
    """Stop a workload, or those a file describes.

    They stay listed, with their logs, until they are deleted. What has not started yet is stopped at once.
    """
    thing_or_file("workload", words, file)
    client = connect(api_url)
    if file is not None:
        answer = client.post("/v1/stop", documents_body(file), {"group": group}, timeout=FILE_SECONDS)
        return show_results(answer["results"], output)
    kind, ref = one_thing(words, KINDS)
    path = f"/v1/workloads/{segment(asked_for(client, kind, ref, group))}/stop"
    return each([ref], lambda _: client.post(path, query={"group": group}), output, becomes)
