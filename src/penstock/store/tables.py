"""The tables: whole nouns as JSON beside the few columns that are searched or sorted by.

Times are whole milliseconds since 1970, in UTC: the same number, and the same order, in both databases.
`seq` grows with each row and orders every list; AUTOINCREMENT, so that a number is never given twice and a cursor
never points at another row than it did.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    event,
)

_SAID = "the audit is only added to"

AUDIT_STAYS = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{deed} BEFORE {deed} ON audit BEGIN SELECT RAISE(ABORT, '{_SAID}'); END"
        for deed in ("update", "delete")
    ],
    "postgresql": [
        f"CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{_SAID}'; END $$",
        "CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_stays()",
    ],
}
"""By dialect."""


metadata = MetaData()

_Seq = BigInteger().with_variant(Integer, "sqlite")


def _seq() -> Column[int]:
    return Column("seq", _Seq, primary_key=True, autoincrement=True)


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, Text, nullable=False) for name in names]


def _whole_numbers(*names: str) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in names]


def _workload_id(*, primary_key: bool = False) -> Column[str]:
    owner = ForeignKey("workloads.id", ondelete="CASCADE")
    return Column("workload_id", Text, owner, nullable=False, primary_key=primary_key)


volumes = Table(
    "volumes",
    metadata,
    _seq(),
    Column("id", Text, nullable=False, unique=True),
    *_texts("group_name", "made_by", "name", "phase"),
    *_whole_numbers("uid", "gid"),
    Column("account_user", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("doc", Text, nullable=False),
    sqlite_autoincrement=True,
)
_alive = volumes.c.phase != "Deleting"
Index(
    "volumes_name",
    volumes.c.name,
    volumes.c.group_name,
    unique=True,
    sqlite_where=_alive,
    postgresql_where=_alive,
)
Index("volumes_group", volumes.c.group_name, volumes.c.seq)
Index("volumes_phase", volumes.c.phase, volumes.c.seq)

workloads = Table(
    "workloads",
    metadata,
    _seq(),
    Column("id", Text, nullable=False, unique=True),
    *_texts("group_name", "made_by", "name", "state", "wants"),
    Column("active", Boolean, nullable=False),
    *_whole_numbers("created_at", "updated_at"),
    Column("ended_at", BigInteger),
    # Before the document: a list reads this far and no further, however long the document is.
    *_texts("summary", "doc"),
    # Where a migration had to put it: looked for through its index, and never read from here.
    Column("expires_at", BigInteger),
    sqlite_autoincrement=True,
)
# One per way a list can be narrowed; each ends in seq, so that a page is read off its end. See workloads.py.
Index("workloads_group", workloads.c.group_name, workloads.c.seq)
Index("workloads_group_state", workloads.c.group_name, workloads.c.state, workloads.c.seq)
Index("workloads_group_name", workloads.c.group_name, workloads.c.name, workloads.c.state, workloads.c.seq)
Index("workloads_state", workloads.c.state, workloads.c.seq)
Index("workloads_name", workloads.c.name, workloads.c.state, workloads.c.seq)
Index("workloads_ended", workloads.c.ended_at)
Index("workloads_expires", workloads.c.expires_at)
_active = workloads.c.active.is_(True)
Index("workloads_active", workloads.c.seq, sqlite_where=_active, postgresql_where=_active)

history = Table(
    "history",
    metadata,
    _seq(),
    _workload_id(),
    Column("attempt", Integer, nullable=False),
    *_texts("state", "reason"),
    Column("message", Text),
    Column("at", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index("history_workload", history.c.workload_id, history.c.seq)

units = Table(
    "units",
    metadata,
    _workload_id(primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("doc", Text, nullable=False),
)

mounts = Table(
    "mounts",
    metadata,
    _workload_id(primary_key=True),
    Column("volume_id", Text, primary_key=True),
    Column("active", Boolean, nullable=False),
)
Index("mounts_volume", mounts.c.volume_id, mounts.c.active)

dependencies = Table(
    "dependencies",
    metadata,
    _workload_id(primary_key=True),
    Column("after_id", Text, primary_key=True),
    # Kept when what it waits for is deleted, so that one that completed is not missed.
    Column("completed", Boolean, nullable=False),
)
Index("dependencies_after", dependencies.c.after_id)

tokens = Table(
    "tokens",
    metadata,
    _seq(),
    Column("id", Text, nullable=False, unique=True),
    Column("user_name", Text, nullable=False),
    Column("uid", BigInteger),
    Column("runs_server", Boolean, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("last_used_at", BigInteger),
    sqlite_autoincrement=True,
)
Index("tokens_user", tokens.c.user_name, tokens.c.seq)

submissions = Table(
    "submissions",
    metadata,
    Column("user_name", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    *_texts("digest", "kind", "object_id"),
    Column("created_at", BigInteger, nullable=False),
)
Index("submissions_created", submissions.c.created_at)

registered = Table(
    "registered",
    metadata,
    # What admins write down: users, groups, nodes, storages. Groups and users belong to no group: empty there.
    Column("kind", Text, primary_key=True),
    Column("group_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    *_whole_numbers("created_at", "updated_at"),
    Column("doc", Text, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    _seq(),
    Column("at", BigInteger, nullable=False),
    *_texts("user_name", "verb", "kind", "group_name", "name", "object_id", "result"),
    Column("detail", Text),
    sqlite_autoincrement=True,
)
for _dialect, _statements in AUDIT_STAYS.items():
    for _statement in _statements:
        _guard = DDL(_statement)  # type: ignore[no-untyped-call]
        event.listen(audit, "after_create", _guard.execute_if(dialect=_dialect))
Index("audit_user", audit.c.user_name, audit.c.seq)
Index("audit_name", audit.c.name, audit.c.seq)

outbox = Table(
    "outbox",
    metadata,
    _seq(),
    # No reference to the workload: what it was is told even if it is deleted meanwhile.
    *_texts("workload_id", "to", "doc"),
    Column("tries", Integer, nullable=False),
    *_whole_numbers("created_at", "due_at"),
    sqlite_autoincrement=True,
)
Index("outbox_due", outbox.c.due_at)

usage = Table(
    "usage",
    metadata,
    _seq(),
    # No reference to the workload: what was taken is known when nothing else of it is any more.
    Column("workload_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    *_texts("group_name", "made_by"),
    # How many it had, and what was reserved in each. An array may have had fewer at times: then their mean.
    Column("places", Float, nullable=False),
    Column("gpus", Integer, nullable=False),
    *_whole_numbers("cpus_milli", "memory_bytes", "began_at"),
    Column("ended_at", BigInteger),
    # Of its GPUs together: for how long it was seen what they do, and how long of that they worked.
    *_whole_numbers("gpu_seen_ms", "gpu_busy_ms"),
    Column("peak_memory_bytes", BigInteger),
    sqlite_autoincrement=True,
)
Index("usage_workload", usage.c.workload_id, usage.c.seq)
Index("usage_ended", usage.c.ended_at)
Index("usage_group", usage.c.group_name, usage.c.ended_at)

locks = Table(
    "locks",
    metadata,
    Column("node", Text, primary_key=True),
    # The uuid of a GPU, or the number of a CPU.
    Column("device", Text, primary_key=True),
    Column("workload_id", Text, ForeignKey("workloads.id", ondelete="CASCADE"), nullable=False),
    Column("since", BigInteger, nullable=False),
)
Index("locks_workload", locks.c.workload_id)
