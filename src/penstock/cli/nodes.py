"""`penstock nodes`."""

from __future__ import annotations

from penstock.cli.options import api_url_option, connect, output_option
from penstock.cli.output import print_items
from penstock.cli.table import Column, Row, field
from penstock.cli.tree import command
from penstock.domain.quantities import show_bytes


@command("nodes", examples="penstock nodes")
@output_option
@api_url_option(short=True)
def nodes(output: str, api_url: str | None) -> None:
    """Show the machines that run jobs and what is free."""
    items = connect(api_url).get("/v1/nodes")["items"]
    columns = [
        field("Name", "name", least=12),
        Column("CPUs Free", lambda row: f"{row['cpus_free']} of {row['cpus']}"),
        Column(
            "Memory Free", lambda row: f"{show_bytes(row['memory_free_bytes'])} of {show_bytes(row['memory_bytes'])}"
        ),
        Column("GPUs Free", _gpus, least=20),
        Column("Limits", lambda row: "enforced" if row["limits_enforced"] else "advisory"),
    ]
    print_items(items, output, columns)


def _gpus(row: Row) -> str:
    """`1 of 2 NVIDIA A10`, for each product."""
    counts: dict[str, list[int]] = {}
    for gpu in row["gpus"]:
        count = counts.setdefault(gpu["product"], [0, 0])
        count[0] += not gpu["workload"] and not gpu["taken_elsewhere"]
        count[1] += 1
    return ", ".join(f"{free} of {total} {product}" for product, (free, total) in counts.items()) or "-"
