"""`penstock top`: show what a workload or a node uses, refreshed until you leave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from penstock.cli.completion import kinds_and_names
from penstock.cli.ui.command import command
from penstock.cli.ui.kinds import KindParam, asked_for, one_thing
from penstock.cli.ui.options import common_options, connect, group_option, part_options
from penstock.cli.ui.output import as_table, echo_styled, note, print_data
from penstock.cli.ui.table import GAP, Column, Row, field, printable, table, terminal_width, wrapped
from penstock.cli.ui.watch import redraw
from penstock.client.address import segment
from penstock.client.api import Client
from penstock.client.retry import ServerWait
from penstock.domain.quantities import show_bytes
from penstock.errors import NotFound

PAUSE_SECONDS = 2
WAIT_SECONDS = 20
"""How long a single look waits for measurements; with --watch they are shown later."""
NODES = ("node", "nodes")

Ask = Callable[[], Any]


@command(
    "top",
    examples="""
    penstock top wk first-test -g your-group
    penstock top train --node 1
    penstock top node""",
)
@click.argument("words", metavar="[KIND] [NAME_OR_ID]", nargs=-1, required=True, shell_complete=kinds_and_names)
@group_option
@part_options
@click.option("-w", "--watch/--no-watch", default=None, help="Go on until Ctrl-C. [default: at a terminal]")
@common_options(short=True)
def top(words: tuple[str, ...], group: str | None, part: int | None, watch: bool | None, output: str) -> None:
    """Show what a workload or the nodes use now: CPUs, memory, GPUs, disk and network, and a workload's processes."""
    client = connect()
    if watch is None:
        watch = as_table(output) and sys.stdout.isatty()
    ask, lines = _asked(client, words, {"group": group, "part": part}, 0 if watch else WAIT_SECONDS)
    if not watch:
        _print(ask(), output, lines)
        return
    try:
        _go_on(client, ask, output, lines)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            note("")


def _asked(
    client: Client, words: tuple[str, ...], query: dict[str, Any], wait: int
) -> tuple[Ask, Callable[[Any], list[str]]]:
    """Return the request to repeat and the function that draws its answer; `top node` is all nodes."""
    if len(words) == 1 and words[0].lower() in NODES:
        return partial(_nodes, client, query, wait, None), node_lines
    kind, ref = one_thing(words, KindParam("Workload", "Node"))
    if kind.noun == "Node":
        return partial(_nodes, client, query, wait, ref), node_lines
    named = asked_for(client, kind, ref, query["group"])
    return partial(client.get, f"/v1/workloads/{segment(named)}/top", query), workload_lines


def _nodes(client: Client, query: dict[str, Any], wait: int, ref: str | None) -> list[Row]:
    items = client.list("/v1/nodes/top", {"group": query["group"], "name": ref, "wait": wait}, 0).items
    if ref is not None and not items:
        raise NotFound(f"Node {ref} not found", hint="penstock top node")
    return items


def _go_on(client: Client, ask: Ask, output: str, lines: Callable[[Any], list[str]]) -> None:
    from time import sleep

    found = ask()
    patience = ServerWait(client, note)
    while True:
        if as_table(output) and sys.stdout.isatty():
            redraw(lines(found))
        else:
            _print(found, output, lines)
            sys.stdout.flush()
        sleep(PAUSE_SECONDS)
        found = patience.ask(ask)


def _print(found: Any, output: str, lines: Callable[[Any], list[str]]) -> None:
    if as_table(output):
        echo_styled("\n".join(lines(found)))
    else:
        print_data(found, output)


def workload_lines(measure: Row) -> list[str]:
    """Draw a line for each resource, then the GPUs, then the processes."""
    lines = [printable(f"{measure.get('name', '-')} ({measure.get('id', '-')}), node {measure.get('part', 0)}")]
    lines.append(GAP.join([f"CPU {_percent(measure.get('cpu_percent'))}", f"Memory {_memory(measure)}"]))
    disk = _pair(measure, "disk_read_bytes", "read", "disk_written_bytes", "written")
    network = _pair(measure, "network_received_bytes", "received", "network_sent_bytes", "sent")
    lines.append(GAP.join([f"Disk {disk}", f"Network {network}"]))
    lines += _said(measure["message"]) if measure.get("message") else []
    if measure.get("gpus"):
        lines += ["", *table(measure["gpus"], GPUS)]
    if measure.get("processes"):
        busiest = sorted(measure["processes"], key=lambda process: -float(process.get("cpu_percent") or 0))
        lines += ["", *table(busiest, PROCESSES)]
    return lines


def node_lines(nodes: list[Row]) -> list[str]:
    said = [line for node in nodes if node.get("message") for line in _said(f"{node['name']}: {node['message']}")]
    return [*table(nodes, NODE), *said]


def _said(text: str) -> list[str]:
    return wrapped(printable(text), terminal_width())


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}%"


def _memory(measure: Row) -> str:
    limit = measure.get("memory_limit_bytes")
    return _bytes(measure.get("memory_bytes")) + (f" of {show_bytes(limit)}" if limit else "")


def _pair(measure: Row, first: str, one: str, second: str, other: str) -> str:
    if measure.get(first) is None and measure.get(second) is None:
        return "-"
    return f"{_bytes(measure.get(first))} {one}, {_bytes(measure.get(second))} {other}"


def _rates(first: str, second: str) -> Callable[[Row], str]:
    """`1.5Mi / 20Ki`"""

    def rates(row: Row) -> str:
        unknown = row.get(first) is None and row.get(second) is None
        return "-" if unknown else f"{_bytes(row.get(first))} / {_bytes(row.get(second))}"

    return rates


def _bytes(amount: int | None) -> str:
    return "-" if amount is None else show_bytes(amount)


def _used(key: str) -> Callable[[Row], str]:
    """`2.5Gi of 16Gi`"""
    return lambda row: f"{_bytes(row.get(key))} of {_bytes(row.get('memory_bytes'))}"


def _gpus(node: Row) -> str:
    """`12%, 80%`: each in its order."""
    return ", ".join(_percent(gpu.get("utilization")) for gpu in node.get("gpus") or ()) or "-"


def _load(node: Row) -> str:
    return " ".join(f"{value:.2f}" for value in node.get("load") or ()) or "-"


GPUS = [
    field("GPU", "uuid", drop=2, least=12),
    field("Product", "product", least=12),
    Column("Memory", _used("memory_used_bytes")),
    Column("Use", lambda row: _percent(row.get("utilization"))),
    Column("Processes", lambda row: "-" if row.get("processes") is None else str(len(row["processes"])), drop=1),
]
PROCESSES = [
    field("PID", "pid"),
    field("User", "user", drop=1, least=8),
    Column("CPU", lambda row: _percent(row.get("cpu_percent"))),
    Column("Memory", lambda row: _bytes(row.get("memory_bytes"))),
    field("Command", "command", least=16),
]
NODE = [
    field("Node", "name", least=12),
    field("CPUs", "cpus", drop=3),
    Column("CPU", lambda row: _percent(row.get("cpu_percent"))),
    Column("Load", _load, drop=4),
    Column("Memory", _used("memory_used_bytes")),
    Column("GPUs", _gpus, least=8),
    Column("Disk r / w", _rates("disk_read_per_second", "disk_written_per_second"), drop=2),
    Column("Network in / out", _rates("received_per_second", "sent_per_second"), drop=1),
]
