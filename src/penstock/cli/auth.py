"""`penstock auth`: sign in to a server, sign out, and show who you are there."""

from __future__ import annotations

import sys

import click

from penstock.cli.ui.command import LazyGroup
from penstock.cli.ui.options import api_url_option, common_options, connect
from penstock.cli.ui.output import as_table, echo, note, print_data, show_hint
from penstock.client.credentials import read_credentials, write_credentials
from penstock.domain.names import USER
from penstock.errors import Unauthenticated, Unreachable

IN_THE_CLEAR = "Note: http:// sends your token unencrypted; use https:// if the server offers it."


@click.group(cls=LazyGroup)
def auth() -> None:
    """Sign in to servers, and see who they know you as."""


@auth.command(
    "login",
    examples="""
    penstock auth login alice
    penstock auth login alice --api-url https://ai.example.org --token - < token.txt""",
)
@click.argument("username")
@click.option("--token", help="Your token; - reads it from standard input.")
@api_url_option(short=True)
def login(username: str, token: str | None) -> None:
    """Save USERNAME, and a token, for a server.

    The server of this machine needs no login: it knows you by your Unix account.
    """
    if not USER.match(username):
        raise click.BadParameter(f"'{username}' is not a user name.", param_hint="USERNAME")
    client = connect()
    if token == "-":
        token = sys.stdin.readline()
    write_credentials(client.key, username, token.strip() if token else None)
    echo(f"Logged in as: {username}")
    if token and client.url and client.url.in_the_clear:
        note(IN_THE_CLEAR)
    try:
        _say_if_other(username, client.get("/v1/whoami"))
    except (Unauthenticated, Unreachable) as error:
        note(f"Note: saved, but the server did not confirm it: {error.message}")
        show_hint(error)


@auth.command("whoami", examples="penstock auth whoami")
@common_options(short=True)
def whoami(output: str) -> None:
    """Show who the server knows you as."""
    client = connect()
    try:
        me = client.get("/v1/whoami")
    except Unauthenticated as error:
        echo("Not logged in")
        show_hint(error)
        return
    if as_table(output):
        echo(f"Logged in as: {me['user']}")
        _say_if_other(read_credentials(client.key).get("user"), me)
    else:
        print_data({"name": me["user"]} if output == "name" else me, output)


def _say_if_other(name: str | None, me: dict[str, str]) -> None:
    if name is None or name == me["user"]:
        return
    how = {"socket": "your Unix account", "token": "your token"}.get(me["proof"], "the name you sent")
    note(f"Note: this server knows you by {how} as {me['user']}, not as {name}; what you make belongs to {me['user']}.")
