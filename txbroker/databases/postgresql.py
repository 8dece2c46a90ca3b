"""PostgreSQL, through psycopg (blocking and asynchronous) or psycopg2.

The block's mark is a setting local to the transaction: it is gone when that is, without the cost of a savepoint.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from txbroker import errors
from txbroker.databases.adapter import Condition, Connector
from txbroker.databases.dbapi import DbApiDatabase
from txbroker.databases.dialects import (
    COMMITTED,
    IDENTITY,
    TABLE,
    Dialect,
    Executes,
    Result,
    lost_mark,
    named,
)

_IDLE, _IN_TRANSACTION, _IN_ERROR = 0, 2, 3
"""libpq's PQTRANS values."""

_UNKNOWN_CLASSES = ("08", "40003", "57P")
"""SQLSTATEs after which a COMMIT may have happened: lost connections, completion unknown, shutdowns."""


class PostgresqlDialect(Dialect):
    """PostgreSQL's own ways."""

    name = "postgresql"
    old = "decided_at < LOCALTIMESTAMP - INTERVAL '60 seconds'"
    begin_block = (
        "SELECT set_config('txbroker.block', %s, true), current_setting('transaction_read_only'), "
        f"(SELECT identity FROM {IDENTITY})"
    )
    create = Dialect.create + " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"
    insert_decision = (
        f"INSERT INTO {TABLE} (xid, decision, broker) SELECT CAST(%s AS varchar), '{COMMITTED}', CAST(%s AS varchar) "
        "WHERE current_setting('txbroker.block', true) = %s "
        "RETURNING CASE current_setting('synchronous_commit') WHEN 'off' "
        "THEN set_config('synchronous_commit', 'on', true) END"
    )

    async def mark(self, database: Executes, token: str) -> str | None:
        """Mark, and look whether it can be written to."""
        result = await database.execute(self.begin_block, (token,))
        _, read_only, identity = result.rows[0]
        if read_only == "on":
            raise errors.Misuse(
                "the database transaction is read-only (default_transaction_read_only, a hot standby, or SET "
                "TRANSACTION "
                "READ ONLY): a block writes a row that decides. Use a connection that may write, to the primary; "
                "nothing was done"
            )
        return None if identity is None else str(identity)

    async def decide(self, database: Executes, token: str, key: str, broker: str) -> None:
        """Insert the row where the mark still is; a commit that is not forced would be no decision, so it is now."""
        result = await database.execute(self.insert_decision, (key, broker, token))
        if not result.rows:
            raise lost_mark("the mark of its transaction is gone")

    async def home(self, database: Executes) -> str:
        """A restored dump has another of these: the cluster, the database, the table."""
        result = await database.execute(
            "SELECT s.system_identifier || '/' || d.oid || '/' || to_regclass(%s)::oid "
            "FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database()",
            (TABLE,),
        )
        return str(result.rows[0][0])

    def patience(self, seconds: float) -> Sequence[str]:
        """For this transaction only: the connection may be a pool's."""
        return (
            f"SET LOCAL lock_timeout = '{max(1, round(seconds * 1000))}ms'",
            "SET LOCAL synchronous_commit = on",
        )

    def patience_for_deleting(self, seconds: float) -> Sequence[str]:
        """Not forced: a force every now and then for each program would cost more than all the rest of it."""
        return (*self.patience(seconds), "SET LOCAL synchronous_commit = off")

    def leftovers(self) -> str:
        """A thousand at a time."""
        return super().leftovers() + " LIMIT 1000"

    def is_missing_table(self, error: Exception) -> bool:
        """42P01, or no right to see it."""
        return sqlstate(error) in ("42P01", "42501")

    def is_duplicate(self, error: Exception) -> bool:
        """Unique violation."""
        return sqlstate(error) == "23505"

    def is_blocked(self, error: Exception) -> bool:
        """Lock timeout, cancelled, deadlock, serialization."""
        return sqlstate(error) in ("55P03", "57014", "40P01", "40001")


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of a driver's error; "" if it has none."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


@cache
def _plain_rows() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


class _Status:
    """What both psycopgs tell of a connection, blocking or not."""

    connection: Any

    def condition(self) -> Condition:
        """As libpq knows it."""
        status = self.connection.info.transaction_status
        if getattr(self.connection, "_pipeline", None) is not None:
            return Condition.PIPELINED
        if getattr(self.connection, "_num_transactions", 0):
            return Condition.BORROWED  # of psycopg's connection.transaction()
        if status == _IN_TRANSACTION:
            return Condition.OPEN
        if status == _IN_ERROR:
            return Condition.FAILED
        return Condition.AUTOCOMMIT if self.connection.autocommit and status == _IDLE else Condition.IDLE

    def did_not_commit(self, error: BaseException) -> bool:
        """The server answered "no", or COMMIT never left: the connection is whole and says so."""
        if not isinstance(error, Exception) or self.connection.closed:
            return False
        status = self.connection.info.transaction_status
        if status in (_IN_TRANSACTION, _IN_ERROR):
            return True
        state = sqlstate(error)
        return status == _IDLE and bool(state) and not state.startswith(_UNKNOWN_CLASSES)

    def connector(self) -> Connector:
        """With the same parameters, password included."""
        connection = self.connection
        package = type(connection).__mro__[-2].__module__.partition(".")[0]
        info = connection.info
        if package == "psycopg2":
            module, parameters = sys.modules["psycopg2"], dict(info.dsn_parameters)
        else:
            module, parameters = sys.modules["psycopg"], dict(info.get_parameters())
        if info.password:
            parameters["password"] = info.password
        return lambda: module.connect(**parameters)


class PsycopgDatabase(_Status, DbApiDatabase):
    """psycopg, blocking."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, DIALECT, "format")

        self._cursor: Any = None

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement, all of a block with one cursor: making one, and descriptions of rows, takes 30 µs each."""
        if self._cursor is None:
            self._cursor = self.connection.cursor(row_factory=_plain_rows())
        cursor = self._cursor
        cursor.execute(statement, parameters or None)
        return Result(cursor.fetchall() if cursor.pgresult.ntuples else [], cursor.rowcount)


class Psycopg2Database(_Status, DbApiDatabase):
    """psycopg2."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, DIALECT, "format")

    def cursor(self) -> Any:
        """With plain rows, whatever the connection makes of rows."""
        return self.connection.cursor(cursor_factory=sys.modules["psycopg2"].extensions.cursor)


class AsyncPsycopgDatabase(_Status):
    """psycopg's AsyncConnection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.handle: object = connection
        self.dialect: Dialect = DIALECT
        self._cursor: Any = None

    async def open(self) -> None:
        """It is one."""

    async def flush(self) -> None:
        """Statements are run at once."""

    async def begin(self) -> None:
        """The first statement does."""

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement."""
        if self._cursor is None:
            self._cursor = self.connection.cursor(row_factory=_plain_rows())
        cursor = self._cursor
        await cursor.execute(statement, parameters or None)
        return Result(await cursor.fetchall() if cursor.pgresult.ntuples else [], cursor.rowcount)

    async def commit(self) -> None:
        """Commit."""
        await self.connection.commit()

    async def rollback(self) -> None:
        """Roll back."""
        await self.connection.rollback()


DIALECT = PostgresqlDialect()


def adapt(connection: Any) -> PsycopgDatabase | Psycopg2Database | AsyncPsycopgDatabase:
    """The adapter for a connection of psycopg or psycopg2."""
    packages = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if not hasattr(connection, "info") or not hasattr(connection, "commit"):
        raise errors.Misuse(f"{connection!r:.80} is no connection (a cursor, perhaps); nothing was done")
    if "psycopg2" in packages:
        return Psycopg2Database(connection)
    if named(connection, "AsyncConnection"):
        return AsyncPsycopgDatabase(connection)
    return PsycopgDatabase(connection)
