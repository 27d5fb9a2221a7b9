"""`penstock profile`: keep several servers under names of your own."""

from __future__ import annotations

import os
import sys

import click

from penstock.cli.auth import IN_THE_CLEAR
from penstock.cli.completion import profile_names
from penstock.cli.ui.command import LazyGroup
from penstock.cli.ui.options import Function, output_option
from penstock.cli.ui.output import echo, note, print_data, print_items, show_hint
from penstock.cli.ui.table import Column, Row, field
from penstock.client.address import parse_url
from penstock.client.api import Client
from penstock.client.profiles import (
    VARIABLE,
    Profile,
    add_profile,
    all_profiles,
    chosen_profile,
    delete_profile,
    use_profile,
)
from penstock.errors import PenstockError

PATIENCE = 5.0
"""Seconds a server has to accept the token; the profile is kept in any case."""
COLUMNS = [
    Column("Profile", lambda row: f"*{row['name']}*" if row["current"] else row["name"]),
    field("Server", "server", least=20),
    Column("Token", lambda row: "kept" if row["token"] else "none", drop=1),
]


@click.group(cls=LazyGroup)
def profile() -> None:
    """Switch between servers, each with a name and a token of its own."""


def server_options(function: Function) -> Function:
    address = click.option("--api-server", metavar="URL", required=True, help="Address of the server.")
    token = click.option("--token", help="Your token there; - reads it from standard input.")
    return address(token(function))


@profile.command(
    "init",
    examples="""
    penstock profile init prom --api-server https://pwm.example.org --token - < token.txt
    penstock profile init prom --api-server https://pwm.example.org --token NEW --force""",
)
@click.argument("name")
@server_options
@click.option("--force", is_flag=True, help="Replace the profile of this name.")
def init(name: str, api_server: str, token: str | None, force: bool) -> None:
    """Make a profile and use it. The others stay as they are.

    A token on the command line can be seen by others on this machine while the command runs; --token - cannot.
    """
    _add(name, api_server, token, use=True, replace=force)
    _say_used(name)
    _look(name)


@profile.command("add", examples="penstock profile add lab --api-server https://lab.example.org --token - < token.txt")
@click.argument("name")
@server_options
def add(name: str, api_server: str, token: str | None) -> None:
    """Make a profile, without using it yet."""
    _add(name, api_server, token, use=False)
    echo(f"Profile {name} added; use it with: penstock profile use {name}")
    _look(name)


@profile.command("del", examples="penstock profile del lab")
@click.argument("name", shell_complete=profile_names)
def delete(name: str) -> None:
    """Delete a profile and its token."""
    was_used = delete_profile(name)
    echo(f"Profile {name} deleted" + ("; you are on no profile now" if was_used else ""))


@profile.command("use", examples="penstock profile use lab")
@click.argument("name", shell_complete=profile_names)
def use(name: str) -> None:
    """Use a profile from now on."""
    use_profile(name)
    _say_used(name)


@profile.command("using", examples="penstock profile using")
@output_option
def using(output: str) -> None:
    """Show which profile is used."""
    found = chosen_profile(None, named=False)
    if output not in ("table", "wide"):
        print_data(_row(found) if found else [], output)
    elif found:
        echo(_on(found.name))
    else:
        echo("You are on no profile")


@profile.command("list", examples="penstock profile list")
@output_option
def list_profiles(output: str) -> None:
    """List the profiles; the one in use is *marked*."""
    rows = [_row(found) for found in all_profiles()]
    print_items(rows, output, COLUMNS, noun="profiles")


def _add(name: str, api_server: str, token: str | None, *, use: bool, replace: bool = False) -> None:
    server = parse_url(api_server)
    given = sys.stdin.readline().strip() if token == "-" else token
    add_profile(name, server, given, use=use, replace=replace)
    if token not in (None, "-"):
        note("Note: others could see the token on the command line, and your shell may keep it; next time: --token -")
    if given and server.in_the_clear:
        note(IN_THE_CLEAR)


def _look(name: str) -> None:
    """Ask the server whether it accepts the token, so that a mistake shows at once."""
    try:
        note(f"The server knows you as {Client(profile=name, timeout=PATIENCE).get('/v1/whoami')['user']}.")
    except PenstockError as error:
        note(f"Note: saved, but the server did not confirm it: {error.message}")
        show_hint(error)


def _say_used(name: str) -> None:
    echo(_on(name))
    for variable in (VARIABLE, "PENSTOCK_API_URL", "K8S_CLI_API_URL"):
        if os.environ.get(variable, name) != name:
            note(f"Note: {variable} is set to {os.environ[variable]} and takes precedence; unset it.")


def _on(name: str) -> str:
    return f"You are on *{name}* profile"


def _row(found: Profile) -> Row:
    """Return a profile without its token."""
    return {"name": found.name, "server": found.server, "token": bool(found.token), "current": found.current}
