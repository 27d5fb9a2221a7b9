"""`penstock completion`: print the shell's completion script and complete names from a running server."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from penstock.cli.ui.command import command
from penstock.cli.ui.options import chosen_client
from penstock.cli.ui.output import echo
from penstock.client.api import Query
from penstock.errors import PenstockError

PLAIN = re.compile(r"[\w.@:/-]+\Z", re.ASCII)
"""Characters that every shell takes literally; a completed name becomes part of a command line, which runs `$(…)`."""
PATIENCE = 0.5
"""Seconds: Tab waits no longer than this, and never starts a server."""
TAKEN = {
    **dict.fromkeys(("stop", "logs", "inspect", "explain"), ("Workload",)),
    "shell": ("Workload", "Volume"),
    "top": ("Workload", "Node"),
    "delete": ("Workload", "Volume", "Node", "Group", "User", "Storage"),
}
"""The kinds that a command takes; commands not listed take all."""
OF_ACTIVE = ("stop", "shell", "top")
"""Commands for workloads that have not ended."""


def _listed(path: str, query: Query) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete the names of a list."""
    return lambda ctx, param, incomplete: _names(path, query, ctx, incomplete)


volume_names = _listed("/v1/volumes", {"limit": 500})
job_names = _listed("/v1/workloads", {"limit": 100})
active_job_names = _listed("/v1/workloads", {"limit": 100, "status": "pending,running"})
group_names = _listed("/v1/groups", {"limit": 500})
user_names = _listed("/v1/users", {"limit": 500})


def profile_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from penstock.client.profiles import all_profiles

    try:
        return [profile.name for profile in all_profiles() if profile.name.startswith(incomplete)]
    except PenstockError:
        return []


def names_of_kind(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name after a kind: `get volume <Tab>`."""
    kind = ctx.params.get("kind")
    return _names_of(kind.noun, ctx, incomplete) if kind else []


def kinds_and_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete kinds and jobs after `describe`, and volumes after `describe volume`."""
    from penstock.cli.ui.kinds import KindParam, kind_of, speaks_pwm

    words = ctx.params.get(param.name or "") or ()
    workloads = active_job_names if ctx.info_name in OF_ACTIVE else job_names
    if words:
        kind = kind_of(words[0], pwm=speaks_pwm(ctx))
        if kind and kind.noun == "Workload":
            return workloads(ctx, param, incomplete)
        return _names_of(kind.noun, ctx, incomplete) if kind else []
    kinds = KindParam(*TAKEN.get(ctx.info_name or "", ())).offered(ctx)
    return [word for word in kinds if word.startswith(incomplete)] + workloads(ctx, param, incomplete)


def _names_of(noun: str, ctx: click.Context, incomplete: str) -> list[str]:
    from penstock.cli.ui.kinds import PATHS

    return _names(PATHS[noun], {"limit": 500}, ctx, incomplete)


def _names(path: str, query: Query, ctx: click.Context, incomplete: str) -> list[str]:
    asked = {**query, "group": ctx.params.get("group")}
    try:
        items = chosen_client(ctx, None, PATIENCE).get(path, asked)["items"]
    except (PenstockError, OSError):
        return []  # a line of error in the middle of somebody's command line helps nobody
    names = dict.fromkeys(word for item in items for word in (item["name"], item.get("id")) if word)
    return [name for name in names if name.startswith(incomplete) and PLAIN.match(name)]


@command(
    "completion",
    examples="""
    eval "$(penstock completion bash)"
    penstock completion fish > ~/.config/fish/completions/penstock.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the completion script for a shell.

    The default is the shell in $SHELL. The script covers every name of this program.
    """
    import os

    from click.shell_completion import ShellComplete, get_completion_class

    from penstock.cli.main import NAMES, program

    chosen = shell or os.environ.get("SHELL", "bash").rsplit("/", 1)[-1]
    found = get_completion_class(chosen)
    if found is None:
        raise click.UsageError(f"'{chosen}' is not one of bash, zsh, fish.")
    for name in NAMES:
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        echo(ShellComplete.source(found(program(name), {}, name, variable)))
