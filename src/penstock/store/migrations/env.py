"""What Alembic runs: the migrations, on the connection and in the transaction that `upgrade` was given."""

from __future__ import annotations

from alembic import context

from penstock.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite cannot alter most of a table in place.
)
context.run_migrations()
