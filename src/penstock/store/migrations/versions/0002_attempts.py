"""When a workload is to be deleted, and which others it waits for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("workloads", sa.Column("expires_at", sa.BigInteger))
    op.create_index("workloads_expires", "workloads", ["expires_at"])
    owner = sa.ForeignKey("workloads.id", ondelete="CASCADE")
    op.create_table(
        "dependencies",
        sa.Column("workload_id", sa.Text, owner, nullable=False, primary_key=True),
        sa.Column("after_id", sa.Text, primary_key=True),
        sa.Column("completed", sa.Boolean, nullable=False),
    )
    op.create_index("dependencies_after", "dependencies", ["after_id"])
