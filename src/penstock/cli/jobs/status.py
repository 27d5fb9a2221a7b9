"""`penstock jobs status`: show everything about one job."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import join

import click

from penstock.cli.completion import job_names
from penstock.cli.ui.command import command
from penstock.cli.ui.follow import duration
from penstock.cli.ui.options import common_options, connect
from penstock.cli.ui.output import as_table, echo, echo_styled, print_data, print_facts
from penstock.cli.ui.table import Column, Row, clean, field, message_with_place, moment, short_time, table
from penstock.client.address import segment
from penstock.domain.quantities import show_bytes, show_duration
from penstock.domain.secrets import masked_all

MOST = 50
INTEREST = {"CRASHED": 0, "UNKNOWN": 0, "STOPPED": 0, "EXITED": 2}
"""Which of an array's indexes are shown first."""


@command(
    "status",
    examples="""
    penstock jobs status train
    penstock jobs status train -o yaml""",
)
@click.argument("ref", metavar="NAME_OR_ID", shell_complete=job_names)
@common_options(short=True)
def status(ref: str, output: str) -> None:
    """Show a job: what was asked, what happened and why."""
    job = connect().get(f"/v1/workloads/{segment(ref)}")
    if as_table(output):
        show_job(job)
    else:
        print_data(job, output)


def show_job(job: Row, *, history: bool = True) -> None:
    print_facts([*_what_it_is(job), *_what_it_asked(job)])
    for title, lines in _sections(job):
        if title == "History" and not history:
            continue
        echo(f"\n{title}:")
        for line in lines:
            echo_styled(f"  {line}")


def _what_it_is(job: Row) -> list[tuple[str, str]]:
    facts = [("Task ID", "id"), ("Name", "name"), ("Status", "status"), ("State", "state"), ("Reason", "reason")]
    facts += [("Message", "message"), ("Exit Code", "exit_code"), ("User", "user"), ("Namespace", "namespace")]
    facts += [("Job Name", "object_name"), ("Attempt", "attempt")]
    times = [("Created", "created_at"), ("Started", "started_at"), ("Ended", "ended_at"), ("Updated", "updated_at")]
    job = job | {"message": message_with_place(job)}
    shown = [(title, str(job[key])) for title, key in facts if job.get(key) is not None]
    shown += [(title, short_time(job[key])) for title, key in times if job.get(key)]
    took = duration(job.get("started_at"), job.get("ended_at"))
    return shown + ([("Duration", took)] if took else [])


def _what_it_asked(job: Row) -> list[tuple[str, str]]:
    spec = job.get("spec") or {}
    asked = spec.get("resources") or {}
    disk = asked.get("disk_bytes")
    facts = [
        ("Nodes", job.get("nodes")),
        ("Placed On", ", ".join(dict.fromkeys(job.get("hosts") or ())) or None),
        ("Array", _array(job)),
        ("After", ", ".join(spec.get("after") or ()) or None),
        ("CPUs", job.get("cpus")),
        ("Memory", job.get("memory")),
        ("Disk", show_bytes(disk) if disk else None),
        ("GPUs", job.get("accelerators")),
        ("Image", asked.get("image")),
        ("Limits", job.get("limits")),
        ("Workdir", spec.get("workdir")),
        ("Queue", spec.get("queue")),
        ("Only On", _selectors(spec.get("selectors") or {})),
        ("Priority", spec.get("priority") or None),
        ("Ports", ", ".join(f"{each['port']}/{each['protocol']}" for each in spec.get("ports") or ()) or None),
        ("Max Duration", _duration(spec.get("max_duration"))),
        ("Idle Timeout", _duration(spec.get("idle_timeout"))),
        ("Stop Grace", _duration(spec.get("stop_grace"))),
        ("TTL", _duration(spec.get("ttl"))),
        ("Retries", _times(spec.get("retries"))),
        ("Requeue", _times(job.get("requeue"))),
    ]
    return [(title, str(value)) for title, value in facts if value is not None]


def _selectors(asked: Row) -> str | None:
    """Write selectors: `node lab-1, CPU AMD EPYC, label disk=ssd`."""
    said = [f"{word} {asked[key]}" for word, key in (("node", "node"), ("CPU", "cpu_product")) if asked.get(key)]
    said += [f"label {label}={value}" for label, value in (asked.get("labels") or {}).items()]
    return ", ".join(said) or None


def _array(job: Row) -> str | None:
    """Write an array: `100, 8 at once: 90 completed, 2 failed, 8 running`."""
    array = (job.get("spec") or {}).get("array")
    if not array:
        return None
    at_once = f", {array['parallelism']} at once" if array.get("parallelism") else ""
    done = job.get("array") or {}
    counts = ", ".join(f"{done[word]} {word}" for word in ("completed", "failed", "running") if done.get(word))
    return f"{array['count']}{at_once}{': ' if counts else ''}{counts}"


def _duration(seconds: int | None) -> str | None:
    return None if seconds is None else show_duration(seconds)


def _times(count: int | None) -> str | None:
    return None if not count else "unlimited" if count < 0 else str(count)


def _sections(job: Row) -> list[tuple[str, Sequence[str]]]:
    spec = job.get("spec") or {}
    texts = [
        ("Volumes", [_mount(mount) for mount in job.get("volumes") or ()]),
        ("Scratch", [_scratch(scratch) for scratch in spec.get("scratch") or ()]),
        ("Variables", [f"{key}={value}" for key, value in masked_all(spec.get("envs") or {}).items()]),
        ("Setup", (spec.get("setup") or "").splitlines()),
        ("Run", run.splitlines() if isinstance(run := spec.get("run") or "", str) else [join(run)]),
        ("Notes", job.get("notices") or ()),
    ]
    units = "Of each index" if spec.get("array") else "On each node"
    tables = [
        (units, _unit_lines(job) if job.get("units") else ()),
        ("History", table(job["history"], HISTORY, indent=2) if job.get("history") else ()),
    ]
    shown = [*((title, [*map(clean, lines)]) for title, lines in texts), *tables]
    return [(title, lines) for title, lines in shown if lines]


def _mount(mount: Row) -> str:
    return f"{mount['path']}: {mount['volume']} ({mount['id']}{', read-only' if mount.get('read_only') else ''})"


def _scratch(scratch: Row) -> str:
    size = f", {show_bytes(scratch['size_bytes'])}" if scratch.get("size_bytes") else ""
    return f"{scratch['path']}: {scratch['medium']}{size}"


def _unit_lines(job: Row) -> list[str]:
    """Draw a table of nodes or indexes; of very many, those that failed or run come first, and the rest is counted."""
    units = sorted(job["units"], key=lambda unit: INTEREST.get(unit["state"], 1)) if len(job["units"]) > MOST else None
    lines = table((units or job["units"])[:MOST], _units(job), indent=2)
    if units:
        lines.append(f"… {len(units) - MOST:,} more: penstock jobs status {clean(job['id'])} -o json")
    return lines


def _units(job: Row) -> list[Column]:
    """Choose the columns: an attempt column if there was more than one, the index for arrays."""
    first = field("Index", "index") if (job.get("spec") or {}).get("array") else field("Node", "rank")
    attempts = [field("Attempt", "attempt")] if job.get("attempt", 1) > 1 else []
    in_containers = any(unit.get("container") for unit in job["units"])
    *about, said = UNITS
    return [*attempts, first, *about, *([CONTAINER] if in_containers else []), said]


def _peak(unit: Row) -> str:
    return "-" if unit.get("peak_memory_bytes") is None else show_bytes(unit["peak_memory_bytes"])


UNITS = [
    field("State", "state"),
    field("Exit Code", "exit_code"),
    field("Reason", "reason"),
    moment("Started", "started_at", drop=2),
    moment("Ended", "ended_at", drop=3),
    Column("Peak Memory", _peak, drop=1),
    Column("Message", lambda unit: unit.get("message") or "", least=16, wrap=True),
]
CONTAINER = Column("Container", lambda unit: (unit.get("container") or "-")[:12], drop=4)
HISTORY = [
    moment("Time", "at"),
    field("State", "state"),
    field("Reason", "reason"),
    Column("Message", lambda change: change.get("message") or "", least=16, wrap=True),
]
