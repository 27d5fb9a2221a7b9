"""Options that many commands share, and the client they lead to."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from penstock.client.api import ANSWER_SECONDS, Client

FORMATS = ("table", "json", "yaml", "wide", "name")
SERVER = "penstock."
"""What keys in the click context begin with that hold how the command named a server."""

Function = Callable[..., Any]


def all_of(function: Function, *options: Function) -> Function:
    """Add options in the order in which the help shows them."""
    for option in reversed(options):
        function = option(function)
    return function


def api_url_option(*, short: bool = False) -> Callable[[Function], Function]:
    """Add the options that choose the server, by address or profile; `connect` reads them.

    `-u` means the address only where k8s-cli says so; on lists it means all users.
    """
    names = ("-u", "--api-url") if short else ("--api-url",)
    kept: dict[str, Any] = {"expose_value": False, "callback": _keep_server}
    address = click.option(*names, metavar="URL", help="Address of the server. [env: PENSTOCK_API_URL]", **kept)
    profile = click.option(
        "--profile",
        metavar="NAME",
        shell_complete=_profile_names,
        help="The server of this profile. [env: PENSTOCK_PROFILE]",
        **kept,
    )
    return lambda function: all_of(function, address, profile)


def _keep_server(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[f"{SERVER}{param.name}"] = value


def chosen_client(ctx: click.Context, start: Callable[[], None] | None, timeout: float) -> Client:
    """Return a client of the server that the command's options name."""
    api_url, profile = ctx.meta.get(f"{SERVER}api_url"), ctx.meta.get(f"{SERVER}profile")
    if api_url and profile:
        raise click.UsageError("--api-url and --profile cannot be used together.")
    return Client(api_url, profile=profile, start=start, timeout=timeout)


def connect() -> Client:
    """Return a client of the chosen server; it starts the machine's own if none answers."""
    return chosen_client(click.get_current_context(), _start, ANSWER_SECONDS)


def _start() -> None:
    from penstock.cli.server import start_on_demand

    start_on_demand()


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


def common_options(*, short: bool = False) -> Callable[[Function], Function]:
    """Add how to print the answer, and which server to ask."""
    return lambda function: all_of(function, output_option, api_url_option(short=short))


def part_options(function: Function) -> Function:
    """Add `--node N` and `--index N`, of which the command gets one as `part`."""

    @wraps(function)
    def with_part(*args: Any, node: int | None, index: int | None, **kwargs: Any) -> Any:
        if node is not None and index is not None:
            raise click.UsageError("--node and --index cannot be used together.")
        return function(*args, part=node if index is None else index, **kwargs)

    number = click.IntRange(0)
    return all_of(
        with_part,
        click.option("--node", type=number, metavar="N", help="This node. [default: the first that runs]"),
        click.option("--index", type=number, metavar="N", help="This index of an array."),
    )


def all_users_option(help_text: str) -> Callable[[Function], Function]:
    return click.option("-u", "--all-users", is_flag=True, help=help_text)


class ListOptions(NamedTuple):
    """What was asked of a list."""

    details: bool
    all_users: bool
    status: str | None
    name: str | None
    limit: int
    watch: bool
    output: str


def list_options(function: Callable[[ListOptions], None]) -> Function:
    """Add the filters and output options that every list has."""

    @wraps(function)
    def with_options(**given: Any) -> None:
        function(ListOptions(**given))

    limit = click.IntRange(0)
    return all_of(
        with_options,
        click.option("-d", "--details", is_flag=True, help="Show more columns."),
        all_users_option("Show everyone's (admin)."),
        click.option("--status", metavar="WORD[,WORD]", help="Only with these statuses."),
        click.option("--name", help="Only with this name."),
        click.option("--limit", type=limit, default=100, show_default=True, help="At most this many; 0 is all."),
        click.option("-w", "--watch", is_flag=True, help="Keep showing changes until Ctrl-C."),
        common_options(),
    )
