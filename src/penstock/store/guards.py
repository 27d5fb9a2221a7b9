"""What the database itself refuses, whoever asks."""

from __future__ import annotations

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
