"""Show volumes and storages in PWM's columns."""

from __future__ import annotations

from penstock.cli.ui.table import NAME, Column, Row, constant, field, moment


def volume_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "Volume", drop=3),
        field("group", "group", least=8),
        field("name", "name", least=NAME),
        Column("storage", lambda row: str(row.get("storage") or row.get("storage_class") or "-"), drop=1, least=8),
        Column("subPath", sub_path, drop=2, least=12),
        Column("policy", policy),
    ]
    if wide:
        columns += [field("id", "id"), field("size", "size"), field("status", "status", drop=4)]
        columns += [field("user", "user", drop=6), moment("created", "created_at", drop=5)]
    return columns


def sub_path(row: Row) -> str:
    return str(row.get("sub_path") or row.get("object_name") or "-")


def policy(row: Row) -> str:
    only_reads = row.get("readonly") or row.get("access_modes") == ["ReadOnlyMany"]
    return "readonly" if only_reads else "rw"


def storage_columns(*, wide: bool) -> list[Column]:
    columns = [
        constant("kind", "Storage", drop=1),
        field("name", "name", least=NAME),
        field("type", "kind"),
        Column("mount", _mount, least=16),
    ]
    return [*columns, field("group", "group", drop=2)] if wide else columns


def _mount(row: Row) -> str:
    """Return `server:path` of an export, or the node of a disk."""
    export = f"{row['server']}:{row.get('path') or ''}" if row.get("server") else None
    return str(row.get("mount_point") or export or row.get("node") or "-")
