"""The words for each kind of thing, where it is listed from, and its table columns: Penstock's own or PWM's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import click

from penstock.cli.ui.command import USER
from penstock.cli.ui.output import Columns
from penstock.cli.ui.table import Column, Row
from penstock.client.address import segment
from penstock.client.api import Client
from penstock.domain.kinds import ALIASES, kind_named
from penstock.errors import Forbidden, NotFound

OURS = {
    "Workload": ("job", "jobs", "task", "tasks", "pod", "pods"),
    "Volume": ("volume", "volumes", "pvc", "persistentvolumeclaim"),
    "Node": ("node", "nodes"),
    "GPU": ("gpu", "gpus"),
}
"""Documents 001's and 002's; what they are called in full is the same for all."""
ASKING = {"gpuw": "gpu", "cpuw": "cpu"}
"""Workloads that ask for GPUs, and those that do not."""


class KindChoice(NamedTuple):
    noun: str
    """PWM's name of it."""
    document: bool = True
    """Was it asked for in PWM's words? Then it is shown as there."""
    asking: str | None = None
    """Only workloads that ask for this."""


class KindParam(click.ParamType[KindChoice]):
    """`wk`, `Workload`, `job`, `pods` … as the kind they mean."""

    name = "kind"

    def __init__(self, *nouns: str) -> None:
        """Only these; none is all there are."""
        self.nouns = nouns or tuple(ALIASES)

    def convert(self, value: str | KindChoice, param: click.Parameter | None, ctx: click.Context | None) -> KindChoice:
        if isinstance(value, KindChoice):
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


def kind_of(word: str, *, document: bool) -> KindChoice | None:
    """What a word means; `document`: of two meanings, PWM's."""
    lower = word.lower()
    if lower in ASKING:
        return KindChoice("Workload", asking=ASKING[lower])
    ours = next((KindChoice(noun, document=False) for noun, words in OURS.items() if lower in words), None)
    if ours and not document and word not in ALIASES:
        return ours
    noun = kind_named(word)
    return KindChoice(noun) if noun else ours


def speaks_document(ctx: click.Context | None) -> bool:
    """Is it PWM's program that was called?"""
    return ctx is not None and ctx.find_root().info_name == USER


def one_thing(words: tuple[str, ...], kinds: KindParam) -> tuple[KindChoice, str]:
    """`NAME` is a job; `KIND NAME` says what it is, and `KIND/NAME` is kubectl's spelling of that."""
    ctx = click.get_current_context()
    if len(words) == 1 and "/" in words[0]:
        words = tuple(words[0].split("/", 1))
    if len(words) == 1:
        if kind_named(words[0]) or words[0].lower() in ASKING:
            kinds.convert(words[0], None, ctx)  # which refuses one that is not for this command
            raise click.UsageError(f"'{words[0]}' is a kind; name one: {ctx.command_path} {words[0]} NAME.", ctx)
        return KindChoice("Workload", document=speaks_document(ctx)), words[0]
    if len(words) != 2:
        raise click.UsageError(f"Name one thing: {ctx.command_path} KIND NAME.", ctx)
    return kinds.convert(words[0], None, ctx), words[1]


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
"""Each of these is asked for by its own address; of the others, the list."""


class TableView(NamedTuple):
    path: str
    columns: Columns
    rows: Callable[[list[Row]], list[Row]] = list
    """What is listed, of what the API answers."""
    shown: Callable[[Client, list[Row]], list[Row]] = lambda client, rows: rows
    """The same with what only a table needs."""
    ruled: bool = False
    """A line below the header, as PWM has it."""
    told: bool = False
    """The server tells of a change; else it is asked again and again."""
    moving: bool = False
    """What is shown moves though nothing was changed."""


def view_of(kind: KindChoice, *, wide: bool) -> TableView:
    view = _as_documented(kind.noun, wide) if kind.document else _our_own(kind.noun, wide)
    if kind.asking:
        from penstock.cli.pwm.workloads import asks_for

        wanted = kind.asking
        return view._replace(rows=lambda items: [item for item in items if asks_for(wanted, item)])
    return view


def _our_own(noun: str, wide: bool) -> TableView:
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
    """An admin is shown what belongs to others, too."""
    return len({row.get("user") for row in rows or ()}) > 1


def _as_documented(noun: str, wide: bool) -> TableView:
    view = TableView(PATHS[noun], _documented_columns(noun, wide), ruled=True)
    if noun == "Workload":
        from penstock.cli.pwm.workloads import with_places

        return view._replace(shown=with_places, told=True, moving=True)
    if noun == "Volume":
        return view._replace(told=True)
    if noun in ("CPU", "GPU"):
        from penstock.cli.pwm.nodes import cpus, gpus

        return view._replace(rows=cpus if noun == "CPU" else gpus)
    return view


def _documented_columns(noun: str, wide: bool) -> Columns:
    from importlib import import_module

    place, function = COLUMNS[noun].split(":")
    columns = getattr(import_module(f"penstock.cli.pwm.{place}"), function)
    return lambda _: columns(wide=wide)


COLUMNS = {
    "Workload": "workloads:workload_columns",
    "Volume": "volumes:volume_columns",
    "Storage": "volumes:storage_columns",
    "Node": "nodes:node_columns",
    "CPU": "nodes:cpu_columns",
    "GPU": "nodes:gpu_columns",
    "User": "people:user_columns",
    "Group": "people:group_columns",
}


@contextmanager
def refused_as_asked(kind: KindChoice) -> Iterator[None]:
    """GPUs and CPUs come from the list of nodes; whoever may not see them did not ask for nodes."""
    try:
        yield
    except Forbidden as error:
        if kind.noun not in ("GPU", "CPU"):
            raise
        from penstock.domain import policy

        said = policy.refusal(policy.Verb.get, policy.Kind(kind.noun))
        raise Forbidden(said, hint=error.hint) from error


def asked_for(client: Client, kind: KindChoice, ref: str, group: str | None) -> str:
    """By what a command names it to the server: of `gpuw` and `cpuw` it is made sure that it is one."""
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
    """By its name or id; a GPU by its short name, and by the node it is in, too."""
    from penstock.cli.pwm.nodes import short_uuid

    named = [row.get(key) for key in ("name", "id", "node")]
    return ref in named or (bool(row.get("uuid")) and ref == short_uuid(str(row["uuid"])))
