"""Which workload has which GPU, so that no two ever have one."""

from __future__ import annotations

import json
import time

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    locks = op.create_table(
        "locks",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("device", sa.Text, primary_key=True),
        sa.Column("workload_id", sa.Text, sa.ForeignKey("workloads.id", ondelete="CASCADE"), nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
    op.create_index("locks_workload", "locks", ["workload_id"])
    rows = op.get_bind().execute(sa.text("SELECT id, doc FROM workloads WHERE active")).fetchall()
    held = [
        {"node": "", "device": uuid, "workload_id": id_, "since": int(time.time() * 1000)}
        for id_, doc in rows
        for place in json.loads(doc).get("gpus") or ()
        for uuid in place
    ]
    if held:
        op.bulk_insert(locks, held)
