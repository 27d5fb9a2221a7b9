"""The words for each kind of thing, wherever a command takes one."""

from __future__ import annotations

from typing import NamedTuple

import click

from penstock.cli.ui.command import USER
from penstock.domain.kinds import ALIASES, kind_named

OURS = {
    "Workload": ("job", "jobs", "task", "tasks", "pod", "pods"),
    "Volume": ("volume", "volumes", "pvc", "persistentvolumeclaim"),
    "Node": ("node", "nodes"),
    "GPU": ("gpu", "gpus"),
}
"""Documents 001's and 002's; what they are called in full is the same for all."""
ASKING = {"gpuw": "gpu", "cpuw": "cpu"}
"""Workloads that ask for GPUs, and those that do not."""


class Kind(NamedTuple):
    noun: str
    """PWM's name of it."""
    document: bool = True
    """Was it asked for in PWM's words? Then it is shown as there."""
    asking: str | None = None
    """Only workloads that ask for this."""


class KindWord(click.ParamType[Kind]):
    """`wk`, `Workload`, `job`, `pods` … as the kind they mean."""

    name = "kind"

    def __init__(self, *nouns: str) -> None:
        """Only these; none is all there are."""
        self.nouns = nouns or tuple(ALIASES)

    def convert(self, value: str | Kind, param: click.Parameter | None, ctx: click.Context | None) -> Kind:
        if isinstance(value, Kind):
            return value
        found = kind_of(value, document=speaks_document(ctx))
        if found is None or found.noun not in self.nouns:
            self.fail(f"'{value}' is not one of: {self.known()}.", param, ctx)
        return found

    def known(self) -> str:
        """`wk (workload, workloads), gpu (gpus), …`"""
        words = [f"{words[0]} ({', '.join(words[1:])})" for noun, words in ALIASES.items() if noun in self.nouns]
        return ", ".join([*words, *(ASKING if "Workload" in self.nouns else ())])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return "KIND"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.offered(ctx) if word.startswith(incomplete)]

    def offered(self, ctx: click.Context) -> list[str]:
        """A word or two for each kind."""
        document = [ALIASES[noun][0] for noun in self.nouns] + (list(ASKING) if "Workload" in self.nouns else [])
        ours = [] if speaks_document(ctx) else [OURS[noun][0] for noun in self.nouns if noun in OURS]
        return list(dict.fromkeys([*ours, *document]))


def kind_of(word: str, *, document: bool) -> Kind | None:
    """What a word means; `document`: of two meanings, PWM's."""
    lower = word.lower()
    if lower in ASKING:
        return Kind("Workload", asking=ASKING[lower])
    ours = next((Kind(noun, document=False) for noun, words in OURS.items() if lower in words), None)
    if ours and not document and word not in ALIASES:
        return ours
    noun = kind_named(word)
    return Kind(noun) if noun else ours


def speaks_document(ctx: click.Context | None) -> bool:
    """Is it PWM's program that was called?"""
    return ctx is not None and ctx.find_root().info_name == USER


def one_thing(words: tuple[str, ...], kinds: KindWord) -> tuple[Kind, str]:
    """`NAME` is a job; `KIND NAME` says what it is, and `KIND/NAME` is kubectl's spelling of that."""
    ctx = click.get_current_context()
    if len(words) == 1 and "/" in words[0]:
        words = tuple(words[0].split("/", 1))
    if len(words) == 1:
        if kind_named(words[0]) or words[0].lower() in ASKING:
            kinds.convert(words[0], None, ctx)  # which refuses one that is not for this command
            raise click.UsageError(f"'{words[0]}' is a kind; name one: {ctx.command_path} {words[0]} NAME.", ctx)
        return Kind("Workload", document=speaks_document(ctx)), words[0]
    if len(words) != 2:
        raise click.UsageError(f"Name one thing: {ctx.command_path} KIND NAME.", ctx)
    return kinds.convert(words[0], None, ctx), words[1]
