"""Show nodes, CPUs and GPUs in PWM's columns, and ages as PWM writes them: `0:05`, `3 h`, `2 d`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.cli.ui.table import Column, Row, constant, field
from penstock.domain.quantities import show_bytes

MIB = 1 << 20


def node_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "Node", drop=15),
        field("group", "group", drop=6, least=8),
        field("name", "name", least=12),
        field("product_name", "cpu_product", drop=9, least=12),
        field("address", "address", drop=10, least=12),
        Column("allow", lambda row: ",".join(row.get("allows") or ()) or "-", drop=11, least=11),
        Column("cpus", lambda row: _known(row, "cpus", "cpus"), drop=4),
        Column("cpusLoad", lambda row: _share(_number(row, "cpus"), _number(row, "cpus_taken")), drop=3),
        Column("mem", lambda row: show_bytes(row["memory_bytes"]) if row.get("memory_bytes") else "-", drop=7),
        Column("memLoad", lambda row: _share(_number(row, "memory_bytes"), _number(row, "memory_taken_bytes")), drop=5),
        Column("gpus", lambda row: str(_pools(row, "total")) if _number(row, "cpus") else "-", drop=1),
        Column("gpusLoad", lambda row: _share(_pools(row, "total"), _pools(row, "taken"))),
        field("version", "version", drop=12),
        Column("lastSeen", last_seen, drop=2),
        Column("status", node_status),
    ]
    if wide:
        columns.append(Column("labels", _labels, drop=14, least=12))
        columns.append(field("message", "message", drop=13, least=20, wrap=True))
    return columns


def node_status(row: Row) -> str:
    if row.get("maintenance"):
        return "MAINTENANCE"
    return "READY" if row.get("ready", True) and not row.get("message") else "NOT_READY"


def _labels(row: Row) -> str:
    return ",".join(f"{key}={value}" for key, value in (row.get("labels") or {}).items()) or "-"


def _number(row: Row, key: str) -> float:
    return float(row.get(key) or 0)


def _known(row: Row, key: str, total: str) -> str:
    """Return a value, or `-` for a node that never answered."""
    return str(row[key]) if _number(row, total) else "-"


def _pools(row: Row, key: str) -> int:
    return sum(pool.get(key) or 0 for pool in row.get("gpu_pools") or ())


def _share(total: float, taken: float) -> str:
    """Return the share as a percentage, at most 100: on a node that shrank, more than it has may be taken."""
    return f"{min(100 * taken / total, 100):.0f}%" if total else "-"


def cpus(nodes: Sequence[Row]) -> list[Row]:
    return [
        {
            "name": node["name"],
            "product_name": node.get("cpu_product"),
            "count": node.get("cpus"),
            "free": node.get("cpus_free"),
            "node": node["name"],
            "group": node.get("group"),
            "ready": node.get("ready", True),
            "last_seen": node.get("last_seen"),
        }
        for node in nodes
    ]


def cpu_columns(*, wide: bool) -> list[Column]:
    columns = [constant("kind", "CPU", drop=3), field("name", "name", least=12)]
    columns.append(field("product_name", "product_name", least=16))
    columns.append(Column("count", lambda row: _known(row, "count", "count")))
    columns.append(Column("free", lambda row: _known(row, "free", "count")))
    columns += [field("node", "node", drop=1, least=12), Column("lastSeen", last_seen, drop=2)]
    return [*columns, field("group", "group", drop=4)] if wide else columns


def gpus(nodes: Sequence[Row]) -> list[Row]:
    """Return a row per GPU; for a cluster, which only counts them, a row per product of a node."""
    rows = []
    for node in nodes:
        seen = {"node": node["name"], "ready": node.get("ready", True), "last_seen": node.get("last_seen")}
        if node.get("gpus"):
            rows += [gpu | {"name": gpu["uuid"]} | seen | _looked_at(gpu) for gpu in node["gpus"]]
        else:
            rows += [
                pool | {"name": f"{node['name']}/{pool['product']}"} | seen for pool in node.get("gpu_pools") or ()
            ]
    return rows


def _looked_at(gpu: Row) -> Row:
    """Return when the GPU itself was last seen, which may be earlier than its node."""
    return {"last_seen": gpu["last_seen"]} if gpu.get("last_seen") else {}


def gpu_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "GPU", drop=5),
        field("name", "name") if wide else Column("name", lambda row: short_uuid(row["name"]), least=18),
        field("product_name", "product", least=16),
        field("minor_number", "minor", drop=4),
        Column("fb_memory", frame_buffer),
        field("node", "node", drop=1, least=12),
        Column("lastSeen", last_seen, drop=2),
    ]
    if wide:
        columns += [
            Column("taken", _taken, drop=8),
            field("user", "user", drop=7),
            field("workload", "workload", drop=6),
            Column("processes", _processes, drop=9, least=24),
        ]
    return columns


def _processes(row: Row) -> str:
    """Write processes: `python (4711, 5120 MiB)`, and whose they are if they are not ours."""
    if row.get("taken_elsewhere"):
        return "another server on this machine"
    found = [_process(each) for each in row.get("processes") or ()] or [row.get("outside") or ""]
    outside = "outside Penstock: " if row.get("taken") and not row.get("user") else ""
    return outside + ", ".join(found) if found != [""] else "-"


def _process(each: Row) -> str:
    return f"{each.get('name') or '-'} ({each['pid']}, {mebibytes(each.get('memory_bytes'))})"


def _taken(row: Row) -> str:
    return f"{row['taken']} of {row['total']}" if "total" in row else str(bool(row.get("taken"))).lower()


def frame_buffer(row: Row) -> str:
    """Write the memory used: `14286 MiB / 16130 MiB`."""
    if row.get("memory_bytes") is None:
        return "-"
    return f"{mebibytes(row.get('memory_used_bytes'))} / {mebibytes(row['memory_bytes'])}"


def mebibytes(amount: int | None) -> str:
    return "-" if amount is None else f"{amount // MIB} MiB"


def short_uuid(uuid: str) -> str:
    """Shorten a uuid to what identifies it: `GPU-9a4f8-f4a98f3e`. Commands accept it, too."""
    first, _, rest = uuid.removeprefix("GPU-").partition("-")
    return f"GPU-{first[:5]}-{rest[-8:]}" if uuid.startswith("GPU-") and len(rest) >= 8 else uuid


FRESH_SECONDS = 20
HOUR, DAY = 3600, 86400


def age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < HOUR:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // HOUR} h" if whole < DAY else f"{whole // DAY} d"


def lasted(start: str | None, end: str | None) -> str:
    """Return the age between two times of the API; without an end, until now."""
    if not start:
        return "-"
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return age((until - datetime.fromisoformat(start)).total_seconds())


def last_seen(row: Row) -> str:
    """Return when a node was last seen; without a time it is this machine, or a cluster that answers for it."""
    moment = row.get("last_seen")
    if not moment:
        return "now" if row.get("ready", True) else "-"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    return "now" if seconds < FRESH_SECONDS else age(seconds)
