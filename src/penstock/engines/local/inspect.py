"""Show what this machine knows of a run, from its plan, its records and the kernel."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.domain.model import iso
from penstock.domain.secrets import masked_all, passwords_removed
from penstock.engines.base import Presence
from penstock.engines.local.state.parts import RunningPart, find_part, part_processes
from penstock.engines.local.state.report import moment
from penstock.engines.local.state.snapshot import RunReader, read_began, read_plan
from penstock.engines.shared.processes import read_text
from penstock.errors import Conflict

COUNTERS = (
    *("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes"),
    *("memory.current", "memory.peak", "memory.max"),
    *("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpuacct.usage", "cpu.max", "pids.current", "pids.max"),
)
SHOWN = ("argv", "options", "identity", "cgroups", "disk")
MOST_PARTS = 100
"""The most parts of an array that are looked into."""


def inspect_run(run_dir: Path, attempt: int) -> dict[str, Any]:
    """Return it all as JSON. The plan is left out once the run has ended."""
    report = RunReader(run_dir, attempt).read()
    began = read_began(run_dir) or {}
    plan = read_plan(run_dir) if report.presence is not Presence.ended else None
    units = [unit.model_dump(mode="json", exclude_none=True) for unit in report.units]
    found: dict[str, Any] = {
        "presence": report.presence,
        "directory": str(run_dir),
        "supervisor": began.get("pid") if report.presence is Presence.running else None,
        "began_at": iso(moment(began["at"])) if "at" in began else None,
        "machine_started": began.get("boot_id"),
        "gpus": began.get("gpus", []),
        "units": units,
        "plan": _plan(plan) if plan else None,
        "parts": _parts(run_dir, units) if report.presence is Presence.running else [],
    }
    return dict(passwords_removed({name: value for name, value in found.items() if value is not None}))


def _plan(plan: dict[str, Any]) -> dict[str, Any]:
    """Leave out the scripts: those are the user's own text, which `get` shows."""
    kept = {name: plan[name] for name in ("grace", "max_duration", "log_limit_text", "array") if name in plan}
    ranks = [
        {name: rank[name] for name in SHOWN if name in rank} | {"envs": masked_all(rank.get("envs", {}))}
        for rank in plan["ranks"]
    ]
    return kept | {"ranks": ranks}


def _parts(run_dir: Path, units: list[dict[str, Any]]) -> list[dict[str, Any]]:
    numbers = [unit.get("index", 0) + unit.get("rank", 0) for unit in units if "ended_at" not in unit]
    found = []
    for number in numbers[:MOST_PARTS]:
        with suppress(Conflict):  # it has ended meanwhile, or waits for the others
            found.append(_part(number, find_part(run_dir, number)))
    return found


def _part(number: int, part: RunningPart) -> dict[str, Any]:
    members = part_processes(part)
    groups = {group["path"]: _counters(Path(group["path"])) for group in part.node["cgroups"]}
    seen = members[0].pid if members else part.pid
    return {
        "part": number,
        "sandbox": None if part.kept else part.pid,
        "gpus": list(part.gpus),
        "processes": [{"pid": each.pid, "parent": each.parent, "command": _command(each.pid)} for each in members],
        "cgroups": groups,
        "limits": _limits(seen),
        "mounts": _mounts(seen) if not part.kept else [],
    }


def _command(pid: int) -> list[str]:
    return [word for word in (read_text(f"/proc/{pid}/cmdline") or "").split("\0") if word]


def _counters(group: Path) -> dict[str, str]:
    return {name: text.strip() for name in COUNTERS if (text := read_text(str(group / name)))}


def _limits(pid: int) -> dict[str, str]:
    """Read lines such as `Max open files  1024  524288  files`: name, soft and hard, in columns."""
    lines = (read_text(f"/proc/{pid}/limits") or "").splitlines()[1:]
    return {line[:26].strip(): " / ".join(line[26:].split()[:2]) for line in lines}


def _mounts(pid: int) -> list[dict[str, str]]:
    found = []
    for line in (read_text(f"/proc/{pid}/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        words, kinds = before.split(), after.split()
        if len(words) > 5 and len(kinds) > 1:
            found.append({"path": words[4], "from": words[3], "options": words[5], "type": kinds[0]})
    return found
