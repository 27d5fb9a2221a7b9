"""The database itself refuses to change or remove a line of the audit."""

from __future__ import annotations

from alembic import op

from penstock.store.tables import AUDIT_STAYS

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for statement in AUDIT_STAYS[op.get_bind().dialect.name]:
        op.execute(statement)
