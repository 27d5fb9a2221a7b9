"""The words for each kind of thing, wherever a command takes one."""

from __future__ import annotations

import click

WORDS = {
    "jobs": ("job", "jobs", "task", "tasks", "pod", "pods", "wk", "workload", "workloads"),
    "volumes": ("volume", "volumes", "vol", "pvc", "persistentvolumeclaim"),
    "nodes": ("node", "nodes"),
    "gpus": ("gpu", "gpus"),
}


class Kind(click.ParamType[str]):
    """`job`, `jobs`, `pod` … as the one word the rest of the program uses."""

    name = "kind"

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for kind in self.kinds:
            if value == kind or value.lower() in WORDS[kind]:
                return kind
        return self.fail(f"'{value}' is not one of {', '.join(self.kinds)}.", param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return "|".join(self.kinds)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(kind) for kind in self.kinds if kind.startswith(incomplete)]
