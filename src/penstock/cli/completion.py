"""`penstock completion`: the shell's script, and names to complete from a server that already runs."""

from __future__ import annotations

import click

from penstock.cli.kinds import WORDS
from penstock.cli.tree import command
from penstock.client import Client
from penstock.client.api import Query
from penstock.errors import PenstockError

PATIENCE = 0.5
"""Seconds; whoever presses Tab waits no longer, and never starts a server."""


def volume_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names("/v1/volumes", {"limit": 500}, incomplete)


def job_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names("/v1/workloads", {"limit": 100}, incomplete)


def active_job_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names("/v1/workloads", {"limit": 100, "status": "pending,running"}, incomplete)


def node_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names("/v1/nodes", {}, incomplete)


BY_KIND = {"jobs": job_names, "volumes": volume_names, "nodes": node_names, "gpus": node_names}


def names_of_kind(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """After the kind: `get volume <Tab>`."""
    complete = BY_KIND.get(ctx.params.get("kind") or "")
    return complete(ctx, param, incomplete) if complete else []


def kinds_and_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """`describe <Tab>` offers both, `describe volume <Tab>` what there is of them."""
    words = ctx.params.get(param.name or "") or ()
    if words:
        return (volume_names if words[0] in WORDS["volumes"] else job_names)(ctx, param, incomplete)
    return [word for word in ("job", "volume") if word.startswith(incomplete)] + job_names(ctx, param, incomplete)


def _names(path: str, query: Query, incomplete: str) -> list[str]:
    try:
        items = Client(timeout=PATIENCE).get(path, query)["items"]
    except (PenstockError, OSError):
        return []  # a line of error in the middle of somebody's command line helps nobody
    names = dict.fromkeys(word for item in items for word in (item["name"], item.get("id")) if word)
    return [name for name in names if name.startswith(incomplete)]


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

    By default for $SHELL; for both names of this program.
    """
    import os

    from click.shell_completion import ShellComplete, get_completion_class

    from penstock.cli.main import NAMES

    chosen = shell or os.environ.get("SHELL", "bash").rsplit("/", 1)[-1]
    found = get_completion_class(chosen)
    if found is None:
        raise click.UsageError(f"'{chosen}' is not one of bash, zsh, fish.")
    for name in NAMES:
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        click.echo(ShellComplete.source(found(ctx.find_root().command, {}, name, variable)))
