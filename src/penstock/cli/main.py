"""The program: the tree of commands, and how an error is shown."""

from __future__ import annotations

import gc
import os
import sys

import click

from penstock.cli.ui.command import ADMIN, HELP, USER, LazyGroup, version_option
from penstock.cli.ui.output import note, show_error
from penstock.errors import PenstockError

COMMANDS = {
    "run": "penstock.cli.run:run",
    "jobs": "penstock.cli.jobs:jobs",
    "volumes": "penstock.cli.volumes:volumes",
    "apply": "penstock.cli.apply:apply",
    "delete": "penstock.cli.delete:delete",
    "convert": "penstock.cli.convert:convert",
    "get": "penstock.cli.get:get",
    "describe": "penstock.cli.describe:describe",
    "explain": "penstock.cli.explain:explain",
    "stop": "penstock.cli.stop:stop",
    "logs": "penstock.cli.logs:logs",
    "exec": "penstock.cli.exec:execute",
    "shell": "penstock.cli.shell:shell",
    "inspect": "penstock.cli.inspect:inspect",
    "top": "penstock.cli.top:top",
    "port-forward": "penstock.cli.port_forward:port_forward",
    "ssh-proxy": "penstock.cli.ssh_proxy:ssh_proxy",
    "nodes": "penstock.cli.nodes:nodes",
    "usage": "penstock.cli.usage:usage",
    "profile": "penstock.cli.profile:profile",
    "auth": "penstock.cli.auth:auth",
    "token": "penstock.cli.token:token",
    "adm": "penstock.cli.adm:adm",
    "server": "penstock.cli.server:server",
    "doctor": "penstock.cli.doctor:doctor",
    "completion": "penstock.cli.completion:completion",
    "version": "penstock.cli.version:version",
    "api-version": "penstock.cli.version:api_version",
}
PWM = (
    *("profile", "api-version", "get", "describe", "apply", "delete"),
    *("stop", "shell", "logs", "inspect", "top"),
)
"""The commands of `pwmcli`."""
NAMES = ("penstock", "k8s-cli", USER, ADMIN)
UNCOLLECTED = 200_000
"""Objects before the first garbage collection: most commands have ended by then."""


@click.group(cls=LazyGroup, places=COMMANDS, context_settings=HELP)
@version_option
def cli() -> None:
    """Manage volumes and jobs on this machine or on a server, by name."""


@click.group(USER, cls=LazyGroup, places={word: COMMANDS[word] for word in PWM}, context_settings=HELP)
@version_option
def pwmcli() -> None:
    """Manage workloads on GPU servers and workstations, by name."""


def program(name: str) -> click.Group:
    """Return the commands of a program: `pwmcli` has only PWM's words, `pwmadm` is `penstock adm`."""
    if name == USER:
        return pwmcli
    if name == ADMIN:
        from penstock.cli.adm import adm

        return adm
    return cli


def program_name() -> str:
    """Return the name the program was called by, which usage and examples show."""
    called = os.path.basename(sys.argv[0])  # noqa: PTH119 - importing pathlib would slow every command
    return called if called in NAMES else NAMES[0]


def main() -> int:
    """Run the program and return its exit code: 0, that of the error (see `penstock.errors`), or a job's own."""
    gc.set_threshold(UNCOLLECTED)
    try:
        name = program_name()
        result = program(name).main(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        # Whoever read us has gone; the interpreter's own last flush must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr.isatty():
            note("")  # after the terminal's own ^C
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            raise
        if isinstance(error, PenstockError):
            show_error(error)
            return error.exit_code
        note(f"Error: {type(error).__name__}: {error}\nHint: PENSTOCK_DEBUG=1 shows where")
        return 1
    finally:
        gc.freeze()  # else the interpreter looks for rubbish once more before it ends
