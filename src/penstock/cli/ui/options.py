"""Options that many commands share, and the client they lead to."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from penstock.client.api import ANSWER_SECONDS, Client

FORMATS = ("table", "json", "yaml", "wide", "name")
PROFILE = "penstock.profile"
"""The key in the click context for the profile a command named."""

Function = Callable[..., Any]


def api_url_option(*, short: bool = False) -> Callable[[Function], Function]:
    """Add the options that choose the server, by address or profile.

    `-u` means the address only where k8s-cli says so; on lists it means all users.
    """
    names = ("-u", "--api-url") if short else ("--api-url",)
    address = click.option(*names, "api_url", metavar="URL", help="Address of the server. [env: PENSTOCK_API_URL]")
    profile = click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        callback=_keep_profile,
        shell_complete=_profile_names,
        help="The server of this profile. [env: PENSTOCK_PROFILE]",
    )
    return lambda function: address(profile(function))


def _keep_profile(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    if name:
        ctx.meta[PROFILE] = name


def _profile_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from penstock.cli.completion import profile_names

    return profile_names(ctx, param, incomplete)


def _group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from penstock.cli.completion import group_names

    return group_names(ctx, param, incomplete)


def _refuse_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty value: an unset shell variable would mean something else."""
    if value == "":
        raise click.BadParameter("must not be empty.", ctx, param)
    return value


def group_option(function: Function) -> Function:
    option = click.option(
        "-g",
        "--group",
        metavar="GROUP",
        callback=_refuse_empty,
        shell_complete=_group_names,
        help="The group it belongs to. [default: yours]",
    )
    return option(function)


def output_option(function: Function) -> Function:
    kind = click.Choice(FORMATS)
    option = click.option("-o", "--output", type=kind, default="table", show_default=True, help="How to print it.")
    return option(function)


def part_options(function: Function) -> Function:
    """Add `--node N` and `--index N`, of which the command gets one as `part`."""

    @wraps(function)
    def with_part(*args: Any, node: int | None, index: int | None, **kwargs: Any) -> Any:
        if node is not None and index is not None:
            raise click.UsageError("--node and --index cannot be used together.")
        return function(*args, part=node if index is None else index, **kwargs)

    number = click.IntRange(0)
    index = click.option("--index", type=number, metavar="N", help="This index of an array.")
    node = click.option("--node", type=number, metavar="N", help="This node. [default: the first that runs]")
    return node(index(with_part))


def all_users_option(help_text: str) -> Callable[[Function], Function]:
    return click.option("-u", "--all-users", is_flag=True, help=help_text)


def list_options(function: Function) -> Function:
    """Add the filters and output options that every list has."""
    for option in reversed(
        (
            click.option("-d", "--details", is_flag=True, help="Show more columns."),
            all_users_option("Show everyone's (admin)."),
            click.option("--status", metavar="WORD[,WORD]", help="Only with these statuses."),
            click.option("--name", help="Only with this name."),
            click.option(
                "--limit", type=click.IntRange(0), default=100, show_default=True, help="At most this many; 0 is all."
            ),
            click.option("-w", "--watch", is_flag=True, help="Keep showing changes until Ctrl-C."),
            output_option,
            api_url_option(),
        )
    ):
        function = option(function)
    return function


def connect(api_url: str | None, *, timeout: float = ANSWER_SECONDS, start: bool = True) -> Client:
    """Return a client of the chosen server; it starts the machine's own if none answers."""
    profile = click.get_current_context().meta.get(PROFILE)
    if api_url and profile:
        raise click.UsageError("--api-url and --profile cannot be used together.")
    return Client(api_url, profile=profile, start=_start if start else None, timeout=timeout)


def _start() -> None:
    from penstock.cli.server import start_on_demand

    start_on_demand()
