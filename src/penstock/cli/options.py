"""Options that many commands share, and the client they lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from penstock.client import Client

FORMATS = ("table", "json", "yaml", "wide", "name")

Function = Callable[..., Any]


def api_url_option(*, short: bool = False) -> Callable[[Function], Function]:
    """`-u` means the server's address only where document 001 says so; on lists it means all users."""
    names = ("-u", "--api-url") if short else ("--api-url",)
    return click.option(*names, "api_url", metavar="URL", help="Address of the server. [env: PENSTOCK_API_URL]")


def output_option(function: Function) -> Function:
    kind = click.Choice(FORMATS)
    option = click.option("-o", "--output", type=kind, default="table", show_default=True, help="How to print it.")
    return option(function)


def all_users_option(help_text: str) -> Callable[[Function], Function]:
    return click.option("-u", "--all-users", is_flag=True, help=help_text)


def list_options(function: Function) -> Function:
    """Filters and ways of looking that every list has."""
    for option in reversed(
        (
            click.option("-d", "--details", is_flag=True, help="Show more columns."),
            all_users_option("Show everyone's (admin)."),
            click.option("--status", metavar="WORD[,WORD]", help="Only these."),
            click.option("--name", help="Only those of this name."),
            click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="At most; 0 is all."),
            click.option("-w", "--watch", is_flag=True, help="Go on showing changes until Ctrl-C."),
            output_option,
            api_url_option(),
        )
    ):
        function = option(function)
    return function


def connect(api_url: str | None) -> Client:
    """A client that starts the machine's own server where none answers."""
    return Client(api_url, start=_start)


def _start() -> None:
    from penstock.cli.server import start_on_demand

    start_on_demand()
