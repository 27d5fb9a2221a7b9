"""Where each kind of thing is listed from, and its table columns: Penstock's own or PWM's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from penstock.cli.ui.kinds import Kind
from penstock.cli.ui.table import Column, Row
from penstock.client.address import segment
from penstock.client.api import Client
from penstock.domain.kinds import ALIASES
from penstock.errors import Forbidden, NotFound

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

Columns = Callable[[Sequence[Row] | None], list[Column]]
"""Those for these rows; for None, all that any row may need."""


class View(NamedTuple):
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


def view_of(kind: Kind, *, wide: bool) -> View:
    view = _as_documented(kind.noun, wide) if kind.document else _our_own(kind.noun, wide)
    if kind.asking:
        from penstock.cli.pwm.workloads import asks_for

        wanted = kind.asking
        return view._replace(rows=lambda items: [item for item in items if asks_for(wanted, item)])
    return view


def _our_own(noun: str, wide: bool) -> View:
    if noun == "Workload":
        from penstock.cli.jobs.list import job_columns

        def columns(rows: Sequence[Row] | None) -> list[Column]:
            return job_columns(rows, details=False, all_users=_of_several(rows), wide=wide)

        return View(PATHS[noun], columns, told=True)
    if noun == "Volume":
        from penstock.cli.volumes import volume_columns

        return View(PATHS[noun], lambda rows: volume_columns(details=wide, all_users=_of_several(rows)), told=True)
    from penstock.cli.nodes import gpu_columns, node_columns

    if noun == "Node":
        return View(PATHS[noun], lambda _: node_columns(wide=wide))
    return View("/v1/gpus", lambda rows: gpu_columns(rows or (), wide=wide))


def _of_several(rows: Sequence[Row] | None) -> bool:
    """An admin is shown what belongs to others, too."""
    return len({row.get("user") for row in rows or ()}) > 1


def _as_documented(noun: str, wide: bool) -> View:
    view = View(PATHS[noun], _documented_columns(noun, wide), ruled=True)
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
def refused_as_asked(kind: Kind) -> Iterator[None]:
    """GPUs and CPUs come from the list of nodes; whoever may not see them did not ask for nodes."""
    try:
        yield
    except Forbidden as error:
        if kind.noun not in ("GPU", "CPU"):
            raise
        from penstock.domain import policy

        said = policy.refusal(policy.Verb.get, policy.Kind(kind.noun))
        raise Forbidden(said, hint=error.hint) from error


def asked_for(client: Client, kind: Kind, ref: str, group: str | None) -> str:
    """By what a command names it to the server: of `gpuw` and `cpuw` it is made sure that it is one."""
    if not kind.asking:
        return ref
    thing: Row = client.get(f"{PATHS[kind.noun]}/{segment(ref)}", {"group": group})
    check_asking(kind, ref, thing)
    return str(thing["id"])


def check_asking(kind: Kind, ref: str, thing: Row) -> None:
    if not view_of(kind, wide=False).rows([thing]):
        asks = "GPUs" if kind.asking == "cpu" else "no GPUs"
        raise NotFound(f"{kind.noun} {ref} asks for {asks}", hint=f"penstock get {ALIASES[kind.noun][0]} {ref}")


def is_called(row: Row, ref: str) -> bool:
    """By its name or id; a GPU by its short name, and by the node it is in, too."""
    from penstock.cli.pwm.nodes import short_uuid

    named = [row.get(key) for key in ("name", "id", "node")]
    return ref in named or (bool(row.get("uuid")) and ref == short_uuid(str(row["uuid"])))
