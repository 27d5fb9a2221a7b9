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
def shell(words: tuple[str, ...], group: str | None, stdin: bool | None, tty: bool | None) -> int:
    """Open a shell (bash, or else sh) in a running workload, and exit with its exit code.

    On a terminal, every key goes to the shell, Ctrl-C too. For a volume, the shell starts in its directory; no workload
    needs to run.
    """
    from penstock.cli.ui.kinds import KindParam, asked_for, one_thing

    kind, ref = one_thing(words, KindParam(*PLACES))
    client = connect()
    path = PLACES[kind.noun].format(segment(asked_for(client, kind, ref, group)))
    return converse(client, path, {"group": group}, (), stdin, tty)
