"""The program: the tree of commands, and what becomes of an error."""

from __future__ import annotations

import os
import sys

import click

from penstock import __version__
from penstock.cli.output import show_error
from penstock.cli.tree import LazyGroup
from penstock.errors import PenstockError

COMMANDS = {
    "run": "penstock.cli.run:run",
    "jobs": "penstock.cli.jobs:jobs",
    "volumes": "penstock.cli.volumes:volumes",
    "apply": "penstock.cli.apply:apply",
    "delete": "penstock.cli.apply:delete",
    "convert": "penstock.cli.apply:convert",
    "get": "penstock.cli.get:get",
    "describe": "penstock.cli.describe:describe",
    "logs": "penstock.cli.jobs.logs:logs",
    "exec": "penstock.cli.exec:execute",
    "nodes": "penstock.cli.nodes:nodes",
    "auth": "penstock.cli.auth:auth",
    "token": "penstock.cli.token:token",
    "server": "penstock.cli.server:server",
    "doctor": "penstock.cli.doctor:doctor",
    "completion": "penstock.cli.completion:completion",
    "version": "penstock.cli.version:version",
}
NAMES = ("penstock", "k8s-cli")


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"penstock {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-v", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Volumes and jobs on this machine or on a server, by name."""


def program_name() -> str:
    """The name it was called by: usage and examples show it."""
    called = os.path.basename(sys.argv[0])  # noqa: PTH119 - pathlib would cost every command 8 ms
    return called if called in NAMES else NAMES[0]


def main() -> int:
    """Run, and turn what happened into an exit code: 0; 1 for an error; 2 for wrong usage; or the workload's own."""
    try:
        result = cli.main(prog_name=program_name(), standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        # Whoever read us has gone; the interpreter's own last flush must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr.isatty():
            click.echo(err=True)  # after the terminal's own ^C
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except PenstockError as error:
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            raise
        show_error(error)
        return error.exit_code
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            raise
        click.echo(f"Error: {type(error).__name__}: {error}\nHint: PENSTOCK_DEBUG=1 shows where", err=True)
        return 1
