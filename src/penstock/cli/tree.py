"""How commands are written here: groups that import a command when it is used, and help that ends in examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], click.Command]


class Command(click.Command):
    """A command whose help ends with examples, under the name the program was called by."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = [line.strip() for line in examples.splitlines() if line.strip()]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        program = ctx.find_root().info_name or "penstock"
        with formatter.section("Examples"):
            for line in self.examples:
                shown = program + line.removeprefix("penstock") if line.startswith("penstock ") else line
                formatter.write(f"{'':>{formatter.current_indent}}{shown}\n")


class LazyGroup(click.Group):
    """A group that knows where its commands are and imports one when it is asked for."""

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.places:
            return None
        from importlib import import_module

        module, attribute = self.places[cmd_name].split(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.places or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = get_close_matches(args[0], self.places, n=1)
        raise click.UsageError(f"No such command '{args[0]}'." + (f" Did you mean '{near[0]}'?" if near else ""), ctx)


def command(name: str, *, examples: str, **more: Any) -> Decorator:
    """A command that shows its examples."""
    return click.command(name, cls=Command, examples=examples, **more)
