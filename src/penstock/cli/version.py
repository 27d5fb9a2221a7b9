"""`penstock version`: this program's, and that of the server it talks to."""

from __future__ import annotations

import click

from penstock import __version__
from penstock.cli.options import api_url_option
from penstock.cli.tree import command
from penstock.client import Client
from penstock.errors import Unreachable


@command("version", examples="penstock version")
@api_url_option(short=True)
def version(api_url: str | None) -> None:
    """Show the version of this program and of the server."""
    click.echo(f"penstock {__version__}")
    try:
        click.echo(f"server   {Client(api_url, timeout=5).get('/healthz')['version']}")
    except Unreachable as error:
        click.echo(f"server   none ({error.message.rstrip('.')})")
