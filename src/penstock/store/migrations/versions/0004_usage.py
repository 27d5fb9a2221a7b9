"""What was taken of the machines, kept for good; of what is stored already as far as its history tells it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_BEFORE_RUNNING = {"ASSIGNED", "PULLING", "REQUESTED_PULLING", "LAUNCHING", "REQUESTED_LAUNCH", "LAUNCHED"}
_BEGINS = frozenset({*_BEFORE_RUNNING, "RUNNING"})
_HELD = _BEGINS | {"REQUESTED_CANCEL"}

_Row = Sequence[Any]


def upgrade() -> None:
    seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    usage = op.create_table(
        "usage",
        sa.Column("seq", seq, primary_key=True, autoincrement=True),
        sa.Column("workload_id", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("group_name", "made_by")),
        sa.Column("places", sa.Float, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("cpus_milli", "memory_bytes", "began_at")),
        sa.Column("ended_at", sa.BigInteger),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("gpu_seen_ms", "gpu_busy_ms")),
        sa.Column("peak_memory_bytes", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("usage_workload", "usage", ["workload_id", "seq"])
    op.create_index("usage_ended", "usage", ["ended_at"])
    op.create_index("usage_group", "usage", ["group_name", "ended_at"])
    known = op.get_bind()
    workloads = known.execute(sa.text("SELECT id, group_name, made_by, doc FROM workloads ORDER BY seq")).all()
    for workload in workloads:
        values = {"id": workload[0]}
        lines = known.execute(
            sa.text("SELECT attempt, state, at FROM history WHERE workload_id = :id ORDER BY seq"), values
        ).all()
        units = known.execute(sa.text("SELECT attempt, doc FROM units WHERE workload_id = :id"), values).all()
        rows = list(_rows(workload, lines, units))
        if rows:
            known.execute(sa.insert(usage), rows)


def _rows(workload: _Row, lines: Sequence[_Row], units: Sequence[_Row]) -> Iterator[dict[str, Any]]:
    workload_id, group, user, text = workload
    document = json.loads(text)
    if document.get("session"):
        return
    spec = document["spec"]
    asked = spec.get("resources", {})
    least = asked.get("requests", {})
    for attempt, began, ended in _stretches(lines):
        seen = [json.loads(doc) for number, doc in units if number == attempt]
        peaks = [unit["peak_memory_bytes"] for unit in seen if unit.get("peak_memory_bytes")]
        yield {
            "workload_id": workload_id,
            "attempt": attempt,
            "group_name": group,
            "made_by": user,
            "places": _places(spec, seen, began, ended),
            "gpus": asked.get("gpus") or 0,
            "cpus_milli": least.get("cpus_milli") or asked.get("cpus_milli") or 0,
            "memory_bytes": least.get("memory_bytes") or asked.get("memory_bytes") or 0,
            "began_at": began,
            "ended_at": ended,
            "gpu_seen_ms": 0,
            "gpu_busy_ms": 0,
            "peak_memory_bytes": max(peaks, default=None),
        }


def _stretches(lines: Sequence[_Row]) -> Iterator[tuple[int, int, int | None]]:
    """From when it had a place until it had none any more: attempt, begin, end."""
    began: tuple[int, int] | None = None
    for attempt, state, at in lines:
        if began is None and state in _BEGINS:
            began = attempt, at
        elif began is not None and state not in _HELD:
            yield *began, max(at, began[1])
            began = None
    if began is not None:
        yield *began, None


def _places(spec: dict[str, Any], units: Sequence[dict[str, Any]], began: int, ended: int | None) -> float:
    """Of an array, as many as its indexes filled on average: how many it had was not kept."""
    array = spec.get("array")
    if not array:
        return float(spec.get("nodes") or 1)
    if ended is None:
        return float(min(array.get("parallelism") or array["count"], array["count"]))
    spans = [
        _ms(unit["ended_at"]) - _ms(unit["started_at"])
        for unit in units
        if unit.get("started_at") and unit.get("ended_at")
    ]
    return sum(spans) / max(ended - began, 1)


def _ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
