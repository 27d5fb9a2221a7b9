"""`penstock version`: show the versions of this program and of the server it talks to."""

from __future__ import annotations

import click

from penstock import __version__
from penstock.cli.ui.command import command
from penstock.cli.ui.options import api_url_option, chosen_client
from penstock.cli.ui.output import echo
from penstock.errors import Unreachable

PATIENCE = 5.0
API = "v1"


@command("version", examples="penstock version")
@api_url_option(short=True)
def version() -> None:
    """Show the version of this program and of the server."""
    echo(f"penstock {__version__}")
    try:
        echo(f"server   {_server()}")
    except Unreachable as error:
        echo(f"server   none ({error.message.rstrip('.')})")


@command("api-version", examples="penstock api-version")
@api_url_option(short=True)
def api_version() -> None:
    """Show the version of the server's API, and of the server."""
    echo(f"{API} (server {_server()})")


def _server() -> str:
    return str(chosen_client(click.get_current_context(), None, PATIENCE).get("/healthz")["version"])
