"""`pwmcli`: PWM's commands and table columns. Each command is one of penstock's own."""

from __future__ import annotations

import click

from penstock.cli.ui.command import HELP, LazyGroup, version_option

COMMANDS = {
    "profile": "penstock.cli.profile:profile",
    "api-version": "penstock.cli.version:api_version",
    "get": "penstock.cli.get:get",
    "describe": "penstock.cli.describe:describe",
    "apply": "penstock.cli.apply:apply",
    "delete": "penstock.cli.delete:delete",
    "stop": "penstock.cli.stop:stop",
    "shell": "penstock.cli.shell:shell",
    "logs": "penstock.cli.logs:logs",
    "inspect": "penstock.cli.inspect:inspect",
    "top": "penstock.cli.top:top",
}


@click.group("pwmcli", cls=LazyGroup, places=COMMANDS, context_settings=HELP)
@version_option
def pwmcli() -> None:
    """Manage workloads on GPU servers and workstations, by name."""
