"""Groups that import a command when it is used, and help that ends in examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from penstock import __version__
from penstock.cli.ui.output import echo
from penstock.errors import BadName, PenstockError, SettingsError

USER, ADMIN = "pwmcli", "pwmadm"
"""The names of PWM's programs."""
OURS = 125
"""The exit code for an error of ours where every other code may be that of a program, as with `docker run`."""
HELP = {"help_option_names": ["-h", "--help"]}


class Command(click.Command):
    """A command whose help ends with examples, under the name the program was called by."""

    def __init__(self, *args: Any, examples: str = "", passes_code: bool = False, **kwargs: Any) -> None:
        """`passes_code`: it ends with the exit code of a program in a job, so that errors of ours are 125."""
        super().__init__(*args, **kwargs)
        self.passes_code = passes_code
        self.examples = [line.strip() for line in examples.splitlines() if line.strip()]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            if self.passes_code and not isinstance(error, BadName | SettingsError):
                error.exit_code = OURS
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{_as_called(ctx, line)}\n")


def _as_called(ctx: click.Context, line: str) -> str:
    """Rewrite an example for the program that shows it: `pwmadm` is `penstock adm`."""
    program = ctx.find_root().info_name or "penstock"
    ours = "penstock adm" if program == ADMIN else "penstock"
    return program + line.removeprefix(ours) if line.startswith(f"{ours} ") else line


class LazyGroup(click.Group):
    """A group that imports the commands in `places` when they are used; others are declared with `@group.command`."""

    command_class = Command

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.places, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        from importlib import import_module

        module, attribute = self.places[cmd_name].split(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] in known or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = get_close_matches(args[0], known, n=1)
        raise click.UsageError(f"No such command '{args[0]}'." + (f" Did you mean '{near[0]}'?" if near else ""), ctx)


def command(name: str, *, examples: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command of a file of its own."""
    return click.command(name, cls=Command, examples=examples, **more)


def version_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--version`, and `--vers` as in PWM."""
    return click.option(
        "-v",
        "--version",
        "--vers",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version.",
    )(function)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        name = ctx.find_root().info_name
        echo(f"{name if name in (USER, ADMIN) else 'penstock'} {__version__}")
        ctx.exit()
