"""`penstock nodes`: list nodes and GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.ui.command import command
from penstock.cli.ui.options import common_options, connect
from penstock.cli.ui.output import print_items
from penstock.cli.ui.table import Column, Row, field
from penstock.domain.quantities import show_bytes


@command("nodes", examples="penstock nodes")
@common_options(short=True)
def nodes(output: str) -> None:
    """Show the machines that run jobs and what is free."""
    items = connect().get("/v1/nodes")["items"]
    print_items(items, output, node_columns(wide=output == "wide"))


def node_columns(*, wide: bool) -> list[Column]:
    columns = [
        field("Name", "name", least=12),
        Column("Status", _status, drop=2, least=8),
        Column("CPUs Free", _cpus),
        Column("Memory Free", _memory),
        Column("GPUs Free", _gpus, least=20),
        Column("Limits", lambda row: "enforced" if row["limits_enforced"] else "advisory", drop=3),
    ]
    if wide:
        columns.append(Column("GPUs Taken By", lambda row: _holders(row["gpu_pools"]), drop=1, least=16, wrap=True))
    return columns


def gpu_columns(items: Sequence[Row], *, wide: bool) -> list[Column]:
    """Return the columns of GPUs, with the reason if a node takes no work."""
    columns = [
        field("Node", "node", least=12),
        field("Product", "product", least=16),
        field("GPUs", "total"),
        field("In Use", "taken"),
        field("Free", "free"),
        Column("By", lambda row: _holders([row]), drop=1, least=16, wrap=True),
    ]
    if not wide and not any(row.get("message") for row in items):
        return columns
    return [*columns[:-1], field("Status", "message", drop=2, least=12), columns[-1]]


def _status(row: Row) -> str:
    return row.get("message") or ("ready" if row.get("ready", True) else "not ready")


def _cpus(row: Row) -> str:
    """Return free and total CPUs; `-` for a node that never answered."""
    return f"{row['cpus_free']} of {row['cpus']}" if row["memory_bytes"] else "-"


def _memory(row: Row) -> str:
    if not row["memory_bytes"]:
        return "-"
    return f"{show_bytes(row['memory_free_bytes'])} of {show_bytes(row['memory_bytes'])}"


def _gpus(row: Row) -> str:
    """Write each product: `1 of 2 NVIDIA A10`."""
    return ", ".join(f"{pool['free']} of {pool['total']} {pool['product']}" for pool in row["gpu_pools"]) or "-"


def _holders(pools: list[Row]) -> str:
    """Write the holders: `ada 2 (train), bob 1`, with the job where it may be seen."""
    holders = [holder for pool in pools for holder in pool.get("holders") or ()]
    return ", ".join(_holder(holder) for holder in holders) or "-"


def _holder(holder: Row) -> str:
    who, what = holder.get("user"), holder.get("what")
    named = f"{who} {holder['count']}" if who else f"{what} {holder['count']}"
    return f"{named} ({what})" if who and what and what != who else named
