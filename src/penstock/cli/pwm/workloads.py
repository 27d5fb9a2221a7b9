"""Show workloads in PWM's columns."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.pwm.nodes import gpus, lasted, mebibytes, short_uuid
from penstock.cli.ui.table import NAME, Column, Row, constant, field
from penstock.client.api import Client
from penstock.errors import Forbidden, NotFound

HELD = "gpus_held"
"""The key that is added to the API's workload: the GPUs it holds."""
WAITING = ("INSERTED", "DENIED", "QUEUED")
ENDED = ("EXITED", "CRASHED", "STOPPED", "UNKNOWN", "STUCK", "DELETED")
NO_TROUBLE = ("SUBMITTED", "ADOPTED", "PLACED", "STARTED", "FINISHED")
"""Reasons that add nothing to the state."""
ANY = "pwm.all"


def workload_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "Workload", drop=10),
        field("name", "name", least=NAME),
        field("group", "group", drop=5, least=8),
        Column("gpu_type", _gpu_type, drop=4, least=12),
        Column("gpu_id", _gpu_id, drop=7, least=18),
        Column("gpu_usage", _gpu_usage, drop=6),
        Column("node", _node, drop=3, least=10),
        Column("c_id", _container, drop=9),
        Column("locked", lambda row: "true" if is_locked(row) else "false", drop=8),
        Column("status", _state, usual=17),
        Column("reason", _reason, drop=2, least=12, usual=22),
        Column("time", _time, usual=5),
    ]
    if wide:
        columns += [field("id", "id", drop=11), field("user", "user", drop=12), field("cpus", "cpus", drop=13)]
        columns += [field("memory", "memory", drop=14), field("exit_code", "exit_code", drop=15)]
        columns.append(field("message", "message", drop=1, least=20, wrap=True))
    return columns


def with_places(client: Client, rows: Sequence[Row]) -> list[Row]:
    """Add the GPUs and the node of each workload; nodes are asked for only if one is placed."""
    placed = [row for row in rows if is_locked(row)]
    if not placed:
        return list(rows)
    with_gpus = any(row.get("accelerators") for row in placed)
    try:
        nodes = client.list("/v1/nodes", {}, 0 if with_gpus else 2).items
    except (Forbidden, NotFound):
        return list(rows)  # whoever may not see nodes sees no GPUs here either
    held: dict[str, list[Row]] = {}
    for gpu in gpus(nodes):
        held.setdefault(gpu.get("workload") or "", []).append(gpu)
    only = [node["name"] for node in nodes] if len(nodes) == 1 else []
    return [
        row | {HELD: held.get(row["id"], []), "hosts": row.get("hosts") or only} if is_locked(row) else row
        for row in rows
    ]


def asks_for(resource: str, row: Row) -> bool:
    return bool(row.get("accelerators")) == (resource == "gpu")


def is_locked(row: Row) -> bool:
    """Tell whether a workload holds its place; one in doubt keeps it."""
    in_doubt = _state(row) == "UNKNOWN" and not row.get("ended_at")
    return in_doubt or _state(row) not in WAITING + ENDED


def _state(row: Row) -> str:
    return str(row.get("state") or row.get("status") or "-")


def _gpu_type(row: Row) -> str:
    """Return the GPU product it holds, else the one it asked for."""
    if held := row.get(HELD):
        return ",".join(dict.fromkeys(str(gpu.get("product", "-")) for gpu in held))
    product, colon, _ = str(row.get("accelerators") or "").rpartition(":")
    return product if colon else ANY if row.get("accelerators") else "-"


def _gpu_id(row: Row) -> str:
    return ",".join(short_uuid(gpu["name"]) for gpu in row.get(HELD) or ()) or "-"


def _gpu_usage(row: Row) -> str:
    used = [gpu.get("memory_used_bytes") for gpu in row.get(HELD) or ()]
    known = [amount for amount in used if amount is not None]
    return mebibytes(sum(known)) if known else "-"


def _node(row: Row) -> str:
    names = row.get("hosts") or [gpu["node"] for gpu in row.get(HELD) or ()]
    return ",".join(dict.fromkeys(names)) or "-"


def _container(row: Row) -> str:
    """Return the container's id as short as PWM shows it; for an array, how many containers run."""
    if running := (row.get("array") or {}).get("running"):
        return f"{running} running"
    return ",".join(id_[:4] for id_ in row.get("containers") or ()) or "-"


def _reason(row: Row) -> str:
    """Return the reason with the place in the queue; `null`, as PWM has it, if there is none."""
    reason, ahead = row.get("reason"), row.get("ahead")
    if not reason or reason in NO_TROUBLE:
        return "null"
    return f"{reason}, {ahead} ahead" if ahead else str(reason)


def _time(row: Row) -> str:
    """Return how long it has run; before it starts, how long it has waited."""
    return lasted(row.get("started_at") or row.get("created_at"), row.get("ended_at"))
