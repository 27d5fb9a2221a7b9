"""`penstock jobs`: one file per command, imported when it is used."""

from __future__ import annotations

import click

from penstock.cli.ui.command import LazyGroup

COMMANDS = {
    "submit": "penstock.cli.jobs.submit:submit",
    "list": "penstock.cli.jobs.list:list_jobs",
    "status": "penstock.cli.jobs.status:status",
    "logs": "penstock.cli.jobs.logs:logs",
    "wait": "penstock.cli.jobs.wait:wait",
    "retry": "penstock.cli.jobs.retry:retry",
    "stop": "penstock.cli.jobs.stop:stop",
    "delete": "penstock.cli.jobs.delete:delete",
}


@click.group(cls=LazyGroup, places=COMMANDS)
def jobs() -> None:
    """Submit, watch and stop jobs."""
