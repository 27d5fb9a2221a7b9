"""Run blocking transactions on a thread's own connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Dialect, Engine

from penstock.errors import StorageFull
from penstock.store.audit import AuditTable
from penstock.store.connections import translated
from penstock.store.device_locks import LockTable
from penstock.store.documents import DocumentTable
from penstock.store.idempotency import SubmissionTable
from penstock.store.outbox import Outbox
from penstock.store.reserve import DiskReserve
from penstock.store.tokens import TokenTable
from penstock.store.transaction import Transaction
from penstock.store.usage import UsageTable
from penstock.store.volumes import VolumeTable
from penstock.store.workloads import WorkloadTable

T = TypeVar("T")

BEGIN_READING = {"sqlite": "BEGIN", "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}
BEGIN_WRITING = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN"}


class Store(Transaction):
    """What a function given to `read` or `write` works with."""

    def __init__(self, cursor: Any, dialect: Dialect) -> None:
        super().__init__(cursor, dialect)
        self.volumes = VolumeTable(self)
        self.workloads = WorkloadTable(self)
        self.tokens = TokenTable(self)
        self.submissions = SubmissionTable(self)
        self.registered = DocumentTable(self)
        self.audit = AuditTable(self)
        self.outbox = Outbox(self)
        self.locks = LockTable(self)
        self.usage = UsageTable(self)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What came of one function: its value, or the error."""

    value: Any = None
    error: BaseException | None = None


class DatabaseSession:
    def __init__(self, engine: Engine, reserve: DiskReserve | None = None) -> None:
        """`reserve` is for the one that writes, where the database is a file of our own."""
        self._engine = engine
        self._reserve = reserve
        self._connect()

    def _connect(self) -> None:
        self._connection = self._engine.raw_connection()
        self._cursor: Any = self._connection.cursor()
        self._store = Store(self._cursor, self._engine.dialect)

    def read(self, function: Callable[[Store], T]) -> T:
        """Run a function on one snapshot of the whole database."""
        try:
            self._begin(BEGIN_READING)
            value = function(self._store)
            self._connection.commit()
            return value
        except BaseException as error:
            self._rollback()
            raise translated(error)  # noqa: B904 - which has its cause already

    def write(self, functions: Sequence[Callable[[Store], Any]]) -> tuple[list[WriteResult], bool]:
        """Runs them in one transaction and commits once. Also says whether a row changed.

        Each has a savepoint, so one that raises undoes only itself. When the transaction as a whole cannot go on,
        all fail alike: none of them is in the database. Where that is for want of room, each is tried by itself.
        """
        failure, outcomes, wrote = self._write_together(functions)
        if self._reserve and isinstance(failure, StorageFull):
            each = [self._write_alone(function, self._reserve) for function in functions]
            return [outcome for outcome, _ in each], any(changed for _, changed in each)
        return outcomes, wrote

    def _write_alone(self, function: Callable[[Store], Any], reserve: DiskReserve) -> tuple[WriteResult, bool]:
        """Run it alone, and once more where the log had no room left."""
        failure, [outcome], wrote = self._write_together([function])
        if isinstance(failure, StorageFull):
            reserve.empty_log(self._cursor, wait=True)
            _, [outcome], wrote = self._write_together([function])
        return outcome, wrote

    def _write_together(
        self, functions: Sequence[Callable[[Store], Any]]
    ) -> tuple[BaseException | None, list[WriteResult], bool]:
        try:
            self._begin(BEGIN_WRITING)
            self._store.wrote = False
            outcomes = [self._write_one(function) for function in functions]
            self._connection.commit()
            return None, outcomes, self._store.wrote
        except BaseException as error:
            self._rollback()
            failure = translated(error)
            return failure, [WriteResult(error=failure)] * len(functions), False

    def keep_reserve(self) -> None:
        """Fill the reserve between two transactions."""
        if self._reserve:
            self._reserve.fill(self._cursor)

    def close(self) -> None:
        with suppress(Exception):
            if self._reserve:
                self._reserve.empty_log(self._cursor)  # whoever copies the database without its log has all of it
            self._cursor.close()
        self._connection.close()

    def _begin(self, statements: dict[str, str]) -> None:
        """Begin a transaction, once more on a new connection when the old one turns out to be dead: nothing has been
        done on it yet."""
        statement = statements[self._engine.dialect.name]
        try:
            self._cursor.execute(statement)
        except Exception:
            if not self._is_lost():
                raise
            self._drop()
            self._connect()
            self._cursor.execute(statement)

    def _write_one(self, function: Callable[[Store], Any]) -> WriteResult:
        self._cursor.execute("SAVEPOINT one")
        try:
            value = function(self._store)
            self._cursor.execute("RELEASE SAVEPOINT one")
            return WriteResult(value)
        except BaseException as error:
            if translated(error) is not error:
                raise  # The disk or the connection: what the others wrote may be gone with it.
            self._cursor.execute("ROLLBACK TO SAVEPOINT one")
            self._cursor.execute("RELEASE SAVEPOINT one")
            return WriteResult(error=error)

    def _rollback(self) -> None:
        """Roll back. A connection on which even that fails is of no use; the next transaction makes a new one."""
        try:
            self._connection.rollback()
        except Exception:
            self._drop()

    def _is_lost(self) -> bool:
        driver = self._connection.driver_connection
        return driver is None or getattr(driver, "closed", False)

    def _drop(self) -> None:
        if self._connection.is_valid:
            self._connection.invalidate()
