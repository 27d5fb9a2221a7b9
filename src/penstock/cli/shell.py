"""`penstock shell`: open a shell in a running workload or on a volume."""

from __future__ import annotations

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.exec import converse, session_options
from penstock.cli.ui.command import command
from penstock.cli.ui.options import api_url_option, connect, group_option
from penstock.client.address import segment

PLACES = {"Workload": "/v1/workloads/{}/exec", "Volume": "/v1/volumes/{}/shell"}


@command(
    "shell",
    passes_code=True,
    examples="""
    penstock shell wk first-test -g your-group
    penstock shell train
    penstock shell vol training-data""",
)
@click.argument("words", metavar="[KIND] NAME_OR_ID", nargs=-1, required=True, shell_complete=kinds_and_names)
@group_option
@session_options
@api_url_option(short=True)
def shell(words: tuple[str, ...], group: str | None, stdin: bool | None, tty: bool | None, api_url: str | None) -> int:
    """Open a shell inside a running workload, bash or else sh, and end with its exit code.

    With a terminal it is a terminal: every key is the shell's, Ctrl-C too, and it is as large as this one. Of a volume
    it is a shell in its directory; no workload need run.
    """
    from penstock.cli.ui.kinds import KindParam, asked_for, one_thing

    kind, ref = one_thing(words, KindParam(*PLACES))
    client = connect(api_url)
    path = PLACES[kind.noun].format(segment(asked_for(client, kind, ref, group)))
    return converse(client, path, {"group": group}, (), stdin, tty)
