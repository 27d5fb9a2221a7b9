"""What admins write down, who did what, and what people are to be told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "registered",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("group_name", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
    )
    seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "audit",
        sa.Column("seq", seq, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("user_name", "verb", "kind", "group_name", "name", "object_id", "result")
        ),
        sa.Column("detail", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_user", "audit", ["user_name", "seq"])
    op.create_index("audit_name", "audit", ["name", "seq"])
    op.create_table(
        "outbox",
        sa.Column("seq", seq, primary_key=True, autoincrement=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("workload_id", "to", "doc")),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_due", "outbox", ["due_at"])
