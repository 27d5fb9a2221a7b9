"""Show users and groups in PWM's columns."""

from __future__ import annotations

from penstock.cli.ui.table import Column, Row, constant, field
from penstock.domain.quantities import count_cpus, show_bytes, show_duration


def user_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "User", drop=2),
        field("name", "name", least=12),
        Column("groups", _groups, least=16),
        Column("active", lambda row: _yes(row.get("active", True))),
    ]
    return (
        [*columns, field("uid", "uid", drop=3), Column("policy", _policies, wrap=True, least=24)] if wide else columns
    )


def group_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "Group", drop=3),
        field("name", "name", least=12),
        Column("limits", lambda row: _limits(row.get("limits")), least=16),
        Column("limits_each", lambda row: _limits(row.get("limits_each")), drop=1, least=16),
    ]
    if wide:
        columns.append(Column("max_priority", lambda row: str(row.get("max_priority") or 0), drop=4))
        columns.append(Column("max_duration", lambda row: _duration(row.get("max_duration")), drop=4))
        columns.append(Column("idle_timeout", lambda row: _duration(row.get("idle_timeout")), drop=5))
        columns.append(Column("stop_idle", lambda row: _yes(row.get("stop_idle")), drop=6))
    return columns


def _groups(row: Row) -> str:
    return ",".join(str(group.get("name")) for group in row.get("groups") or ()) or "-"


def _policies(row: Row) -> str:
    """Write a line per group: `ada: Workload get,apply; Volume get`."""
    return "\n".join(f"{group.get('name')}: {_policy(group.get('policy'))}" for group in row.get("groups") or ()) or "-"


def _policy(policy: dict[str, list[str]] | str | None) -> str:
    if isinstance(policy, dict):
        return "; ".join(f"{kind} {','.join(verbs)}" for kind, verbs in policy.items()) or "-"
    return policy or "-"


def _limits(limits: Row | None) -> str:
    """Write limits: `8 GPUs, 64 CPUs`; none is `-`."""
    known = limits or {}
    said = [_count(known["gpus"], "GPU")] if known.get("gpus") is not None else []
    said += [count_cpus(known["cpus_milli"])] if known.get("cpus_milli") is not None else []
    said += [_count(known["workloads"], "workload")] if known.get("workloads") is not None else []
    said += [f"{show_bytes(known['volume_bytes'])} in volumes"] if known.get("volume_bytes") is not None else []
    return ", ".join(said) or "-"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _duration(seconds: int | None) -> str:
    return "-" if seconds is None else show_duration(seconds)


def _yes(value: object) -> str:
    return "true" if value else "false"
