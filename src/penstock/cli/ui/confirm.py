"""Ask before something is destroyed, say whose it is, and apply one command to several things."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import click

from penstock.cli.ui.output import as_table, cancelled, echo, print_data, show_error
from penstock.cli.ui.table import Row, clean
from penstock.client.address import segment
from penstock.client.api import Client
from penstock.errors import PenstockError, Unreachable

SHOWN = 10


def confirmed(question: str, option: str = "--force") -> bool:
    """Ask a question and return the answer, typed or piped in; without one, raise an error that names the option."""
    try:
        return click.confirm(clean(question), err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(f"{clean(question)} There is no terminal to ask on: use {option}.") from None


def each(refs: Sequence[str], act: Callable[[str], Row | None], output: str, say: Callable[[Row], str]) -> int:
    """Act on every one and say so, or print what became of them; the exit code is that of the first fault.

    `act` gives None where the person said no.
    """
    code = 0
    done: list[Row] = []
    for ref in refs:
        try:
            result = act(ref)
        except Unreachable:
            raise
        except PenstockError as error:
            if os.environ.get("PENSTOCK_DEBUG") == "1":
                raise
            show_error(error)
            code = code or error.exit_code
            continue
        if result is None:
            cancelled(output)
        elif as_table(output):
            echo(say(result))
        else:
            done.append(result)
    if done:
        print_data(done if len(refs) > 1 else done[0], output)
    return code


def delete_each(
    client: Client,
    path: str,
    refs: Sequence[str],
    question: Callable[[Row, str], str],
    *,
    force: bool,
    output: str,
    say: Callable[[Row], str],
) -> int:
    """Delete the things at `path`; unless forced, ask a question each, which names the owner if that is another."""

    def delete_one(ref: str) -> Row | None:
        thing = client.get(f"{path}/{segment(ref)}")
        if not force:
            whose = f" of {thing['user']}" if of_others(client, [thing]) else ""
            if not confirmed(question(thing, whose)):
                return None
        gone: Row = client.delete(f"{path}/{thing['id']}")
        return gone

    return each(refs, delete_one, output, say)


def of_others(client: Client, things: Iterable[Row]) -> str | None:
    """Say whose they are, as `of ann (3), bob (1)`; None where all are one's own."""
    owners = Counter(str(thing["user"]) for thing in things)
    if not owners or not owners.keys() - {client.get("/v1/whoami")["user"]}:
        return None
    whose = ", ".join(f"{name} ({count})" for name, count in owners.most_common(SHOWN))
    more = f" and {len(owners) - SHOWN} others" if len(owners) > SHOWN else ""
    return f"of {whose}{more}"
