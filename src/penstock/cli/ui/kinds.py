"""The words for each kind of thing, where it is listed from, and its table columns: Penstock's own or PWM's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from penstock.cli.ui.command import USER
from penstock.cli.ui.options import connect
from penstock.cli.ui.output import Columns
from penstock.cli.ui.table import Column, Row
from penstock.client.address import segment
from penstock.client.api import Client
from penstock.domain.kinds import ALIASES, kind_named
from penstock.errors import NotFound

OURS = {
    "Workload": ("job", "jobs", "task", "tasks", "pod", "pods"),
    "Volume": ("volume", "volumes", "pvc", "persistentvolumeclaim"),
    "Node": ("node", "nodes"),
    "GPU": ("gpu", "gpus"),
}
"""The words of Penstock's own commands and of kubectl; the full names are the same for all."""
ASKING = {"gpuw": "gpu", "cpuw": "cpu"}
"""Workloads that ask for GPUs, and those that do not."""


class KindChoice(NamedTuple):
    noun: str
    """PWM's name of it."""
    pwm: bool = True
    """True if it was asked for in PWM's words, and is shown in PWM's columns."""
    asking: str | None = None
    """Only workloads that ask for `gpu` or `cpu`."""


class KindParam(click.ParamType[KindChoice]):
    """A parameter that takes `wk`, `Workload`, `job`, `pods` … as the kind they mean."""

    name = "kind"

    def __init__(self, *nouns: str) -> None:
        """`nouns` are the kinds that are accepted; by default all."""
        self.nouns = nouns or tuple(ALIASES)

    def convert(self, value: str | KindChoice, param: click.Parameter | None, ctx: click.Context | None) -> KindChoice:
        if isinstance(value, KindChoice):
            return value
        found = kind_of(value, pwm=speaks_pwm(ctx))
        if found is None or found.noun not in self.nouns:
            words = [f"{words[0]} ({', '.join(words[1:])})" for noun, words in ALIASES.items() if noun in self.nouns]
            known = ", ".join([*words, *(ASKING if "Workload" in self.nouns else ())])
            self.fail(f"'{value}' is not one of: {known}.", param, ctx)
        return found

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return "KIND"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.offered(ctx) if word.startswith(incomplete)]

    def offered(self, ctx: click.Context) -> list[str]:
        """Return a word or two for each kind, for completion."""
        theirs = [ALIASES[noun][0] for noun in self.nouns] + (list(ASKING) if "Workload" in self.nouns else [])
        ours = [] if speaks_pwm(ctx) else [OURS[noun][0] for noun in self.nouns if noun in OURS]
        return list(dict.fromkeys([*ours, *theirs]))


def kind_of(word: str, *, pwm: bool) -> KindChoice | None:
    """Return the kind a word means; `pwm` prefers PWM's meaning if there are two."""
    lower = word.lower()
    if lower in ASKING:
        return KindChoice("Workload", asking=ASKING[lower])
    ours = next((KindChoice(noun, pwm=False) for noun, words in OURS.items() if lower in words), None)
    if ours and not pwm and word not in ALIASES:
        return ours
    noun = kind_named(word)
    return KindChoice(noun) if noun else ours


def speaks_pwm(ctx: click.Context | None) -> bool:
    return ctx is not None and ctx.find_root().info_name == USER


def one_thing(words: tuple[str, ...], kinds: KindParam) -> tuple[KindChoice, str]:
    """Return the kind and name in `KIND NAME`, `KIND/NAME` (as in kubectl) or `NAME`, which is a job."""
    ctx = click.get_current_context()
    if len(words) == 1 and "/" in words[0]:
        words = tuple(words[0].split("/", 1))
    if len(words) == 1:
        if kind_named(words[0]) or words[0].lower() in ASKING:
            kinds.convert(words[0], None, ctx)  # which refuses one that is not for this command
            raise click.UsageError(f"'{words[0]}' is a kind; name one: {ctx.command_path} {words[0]} NAME.", ctx)
        return KindChoice("Workload", pwm=speaks_pwm(ctx)), words[0]
    if len(words) != 2:
        raise click.UsageError(f"Name one thing: {ctx.command_path} KIND NAME.", ctx)
    return kinds.convert(words[0], None, ctx), words[1]


def one_workload(words: tuple[str, ...], group: str | None) -> tuple[Client, str]:
    """Return a client and the address of the workload that is named."""
    kind, ref = one_thing(words, KindParam("Workload"))
    client = connect()
    return client, f"{PATHS['Workload']}/{segment(asked_for(client, kind, ref, group))}"


PATHS = {
    "Workload": "/v1/workloads",
    "Volume": "/v1/volumes",
    "Node": "/v1/nodes",
    "GPU": "/v1/nodes",
    "CPU": "/v1/nodes",
    "Storage": "/v1/storages",
    "User": "/v1/users",
    "Group": "/v1/groups",
}
SINGLE = ("Workload", "Volume")
"""Kinds with an address for each thing; the others have only a list."""


class TableView(NamedTuple):
    path: str
    columns: Columns
    rows: Callable[[list[Row]], list[Row]] = list
    """Makes rows of the items the API answers."""
    shown: Callable[[Client, list[Row]], list[Row]] = lambda client, rows: rows
    """Adds to rows what only a table needs."""
    ruled: bool = False
    """A line below the header, as PWM has it."""
    told: bool = False
    """The server reports changes; otherwise the list is polled."""
    moving: bool = False
    """The table changes by itself, such as ages do."""


def view_of(kind: KindChoice, *, wide: bool) -> TableView:
    view = _pwm_view(kind.noun, wide) if kind.pwm else _own_view(kind.noun, wide)
    if kind.asking:
        from penstock.cli.pwm.workloads import asks_for

        wanted = kind.asking
        return view._replace(rows=lambda items: [item for item in items if asks_for(wanted, item)])
    return view


def _own_view(noun: str, wide: bool) -> TableView:
    if noun == "Workload":
        from penstock.cli.jobs.list import job_columns

        def columns(rows: Sequence[Row] | None) -> list[Column]:
            return job_columns(rows, details=False, all_users=_of_several(rows), wide=wide)

        return TableView(PATHS[noun], columns, told=True)
    if noun == "Volume":
        from penstock.cli.volumes import volume_columns

        return TableView(PATHS[noun], lambda rows: volume_columns(details=wide, all_users=_of_several(rows)), told=True)
    from penstock.cli.nodes import gpu_columns, node_columns

    if noun == "Node":
        return TableView(PATHS[noun], lambda _: node_columns(wide=wide))
    return TableView("/v1/gpus", lambda rows: gpu_columns(rows or (), wide=wide))


def _of_several(rows: Sequence[Row] | None) -> bool:
    """Tell whether rows belong to more than one user, as an admin's list does."""
    return len({row.get("user") for row in rows or ()}) > 1


def _pwm_view(noun: str, wide: bool) -> TableView:
    from penstock.cli import adm
    from penstock.cli.pwm import nodes, volumes, workloads

    views: dict[str, tuple[Callable[..., list[Column]], dict[str, Any]]] = {
        "Workload": (workloads.workload_columns, {"shown": workloads.with_places, "told": True, "moving": True}),
        "Volume": (volumes.volume_columns, {"told": True}),
        "Storage": (volumes.storage_columns, {}),
        "Node": (nodes.node_columns, {}),
        "CPU": (nodes.cpu_columns, {"rows": nodes.cpus}),
        "GPU": (nodes.gpu_columns, {"rows": nodes.gpus}),
        "User": (adm.user_columns, {}),
        "Group": (adm.group_columns, {}),
    }
    columns, more = views[noun]
    return TableView(PATHS[noun], lambda _: columns(wide=wide), ruled=True, **more)


def asked_for(client: Client, kind: KindChoice, ref: str, group: str | None) -> str:
    """Return the reference to send to the server; for `gpuw` and `cpuw`, check that the workload is one."""
    if not kind.asking:
        return ref
    thing: Row = client.get(f"{PATHS[kind.noun]}/{segment(ref)}", {"group": group})
    check_asking(kind, ref, thing)
    return str(thing["id"])


def check_asking(kind: KindChoice, ref: str, thing: Row) -> None:
    if not view_of(kind, wide=False).rows([thing]):
        asks = "GPUs" if kind.asking == "cpu" else "no GPUs"
        raise NotFound(f"{kind.noun} {ref} asks for {asks}", hint=f"penstock get {ALIASES[kind.noun][0]} {ref}")


def is_called(row: Row, ref: str) -> bool:
    """Tell whether a row has this name or id; a GPU also goes by its short name and its node."""
    from penstock.cli.pwm.nodes import short_uuid

    named = [row.get(key) for key in ("name", "id", "node")]
    return ref in named or (bool(row.get("uuid")) and ref == short_uuid(str(row["uuid"])))
