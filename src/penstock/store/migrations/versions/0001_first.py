"""The first schema: volumes, workloads with history, units and mounts, tokens, idempotency keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _volumes()
    _workloads()
    _of_workloads()
    _tokens()
    _submissions()


def _seq() -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("seq", kind, primary_key=True, autoincrement=True)


def _workload_id(*, primary_key: bool = False) -> sa.Column[str]:
    owner = sa.ForeignKey("workloads.id", ondelete="CASCADE")
    return sa.Column("workload_id", sa.Text, owner, nullable=False, primary_key=primary_key)


def _volumes() -> None:
    op.create_table(
        "volumes",
        _seq(),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("uid", sa.BigInteger, nullable=False),
        sa.Column("gid", sa.BigInteger, nullable=False),
        sa.Column("account_user", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    alive = sa.text("phase != 'Deleting'")
    op.create_index(
        "volumes_name", "volumes", ["name", "group_name"], unique=True, sqlite_where=alive, postgresql_where=alive
    )
    op.create_index("volumes_group", "volumes", ["group_name", "seq"])
    op.create_index("volumes_phase", "volumes", ["phase", "seq"])


def _workloads() -> None:
    op.create_table(
        "workloads",
        _seq(),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("wants", sa.Text, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("workloads_group", "workloads", ["group_name", "seq"])
    op.create_index("workloads_group_state", "workloads", ["group_name", "state", "seq"])
    op.create_index("workloads_group_name", "workloads", ["group_name", "name", "state", "seq"])
    op.create_index("workloads_state", "workloads", ["state", "seq"])
    op.create_index("workloads_name", "workloads", ["name", "state", "seq"])
    op.create_index("workloads_ended", "workloads", ["ended_at"])
    op.create_index(
        "workloads_active",
        "workloads",
        ["seq"],
        sqlite_where=sa.text("active IS 1"),
        postgresql_where=sa.text("active IS true"),
    )


def _of_workloads() -> None:
    op.create_table(
        "history",
        _seq(),
        _workload_id(),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("history_workload", "history", ["workload_id", "seq"])
    op.create_table(
        "units",
        _workload_id(primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("idx", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("doc", sa.Text, nullable=False),
    )
    op.create_table(
        "mounts",
        _workload_id(primary_key=True),
        sa.Column("volume_id", sa.Text, primary_key=True),
        sa.Column("active", sa.Boolean, nullable=False),
    )
    op.create_index("mounts_volume", "mounts", ["volume_id", "active"])


def _tokens() -> None:
    op.create_table(
        "tokens",
        _seq(),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("uid", sa.BigInteger),
        sa.Column("runs_server", sa.Boolean, nullable=False),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("last_used_at", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("tokens_user", "tokens", ["user_name", "seq"])


def _submissions() -> None:
    op.create_table(
        "submissions",
        sa.Column("user_name", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("object_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("submissions_created", "submissions", ["created_at"])
