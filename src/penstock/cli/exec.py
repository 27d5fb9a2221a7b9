"""`penstock exec`: run a program in a running job."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.completion import active_job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.options import Function, api_url_option, connect, part_options
from penstock.client.address import segment

if TYPE_CHECKING:
    from penstock.client.api import Client, Query

COMMAND = 5
LONGEST = 256 * 1024


def session_options(function: Function) -> Function:
    for option in (
        click.option("-t", "--tty/--no-tty", default=None, help="Allocate a terminal. [default: if this is one]"),
        click.option(
            "-i",
            "--stdin/--no-stdin",
            default=None,
            help="Forward standard input. [default: unless that is a terminal and the program has none]",
        ),
    ):
        function = option(function)
    return function


@command(
    "exec",
    passes_code=True,
    examples="""
    penstock exec train
    penstock exec train -- nvidia-smi -l 5
    penstock exec --node 1 train -- py-spy dump --pid 2
    penstock exec train -- tar c results > results.tar""",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=active_job_names)
@click.argument("words", metavar="[--] [COMMAND]...", nargs=-1)
@part_options
@session_options
@api_url_option()
def execute(
    ref: str,
    words: Sequence[str],
    part: int | None,
    stdin: bool | None,
    tty: bool | None,
) -> int:
    """Run a program or a shell in a running job, and exit with its exit code.

    It sees the job's files, variables and processes. It ends when the connection or the job ends.
    """
    query = {"part": part}
    return converse(connect(), f"/v1/workloads/{segment(ref)}/exec", query, words, stdin, tty)


def converse(
    client: Client, path: str, query: Query, words: Sequence[str], stdin: bool | None, tty: bool | None
) -> int:
    """Connect the terminal to a program until it ends, and return its exit code."""
    from penstock.cli.ui.terminal import TerminalSession, size_of

    given = list(words[1:] if words[:1] == ("--",) else words)
    if given == list(words) and given and given[0].startswith("-"):
        raise click.UsageError(f"'{given[0]}' is where the program should begin; put options before the name.")
    if tty is None:
        tty = os.isatty(0) and os.isatty(1) and stdin is not False
    if stdin is None:
        stdin = tty or not os.isatty(0)  # without a terminal, what is typed is for whoever else reads it
    columns, rows = size_of(1, 0) if tty else (None, None)
    command = bytes([COMMAND]) + json.dumps({"command": given}).encode()
    if len(command) > LONGEST:
        raise click.UsageError("The command is longer than 256 KiB; put it into a file, or pass it as standard input.")
    socket = client.websocket(path, {**query, "tty": tty, "columns": columns, "rows": rows})
    socket.send(command)  # not in the address, which the server and every proxy on the way may write down
    return TerminalSession(socket, terminal=tty, stdin=stdin).run()
