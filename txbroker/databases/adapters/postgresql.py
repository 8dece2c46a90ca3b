"""PostgreSQL, through psycopg (blocking and asynchronous) or psycopg2.

The block's mark is a setting local to the transaction: it ends with the transaction, without the cost of a savepoint.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any

from txbroker import errors
from txbroker.databases.adapters.adapter import no_connection
from txbroker.databases.adapters.database import (
    COMMITTED,
    IDENTITY,
    OUTBOX,
    REFUSED,
    TABLE,
    Condition,
    Connector,
    Database,
    OutboxRow,
    Result,
    another_table,
    identity_of,
    identity_pattern,
    lost_mark,
    no_unique_key,
    table_of,
)
from txbroker.databases.adapters.dbapi import DbApiDatabase

_IDLE, _ACTIVE, _IN_TRANSACTION, _IN_ERROR, _UNKNOWN = 0, 1, 2, 3, 4
"""libpq's PQTRANS values."""

_COMMAND_OK, _FATAL, _SYNC = 1, 7, 10
"""libpq's PGRES_COMMAND_OK, PGRES_FATAL_ERROR, PGRES_PIPELINE_SYNC."""

_PUT = b"txbroker_put"
_PUT_FORMATS = (0, 0, 0, 0, 0, 1)
"""Text, and bytes as they are."""

_prepared: weakref.WeakSet[Any] = weakref.WeakSet()
"""The connections that have the statement of that name."""

_FORCED = "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
"""Turns forced commits on for the transaction: an unforced one would decide nothing."""

_UNKNOWN_CLASSES = ("08", "40003", "57P")
"""SQLSTATEs after which a COMMIT may have happened: lost connections, completion unknown, shutdowns."""


def _read_only() -> errors.Misuse:
    return errors.Misuse(
        "the database transaction is read-only (default_transaction_read_only, a hot standby, or SET TRANSACTION READ "
        "ONLY): a block writes a row that decides. Use a connection that may write, to the primary; nothing was done"
    )


def _refuse_lost_place(error: Exception) -> None:
    """Raise what it means that a row had no number: transaction or table were not the block's any more."""
    if sqlstate(error) == "25006":
        raise _read_only() from error
    about = getattr(error, "diag", None)
    if sqlstate(error) == "23502" and about is not None and about.table_name == OUTBOX:
        raise errors.Misuse(
            "the database transaction in which this block began is gone, or the table beside it is another one: "
            "something in the block has committed or rolled back, or changed the schema (search_path). What was "
            "committed so stays; what came after it is rolled back, and none of the block's messages will be seen. "
            "Leave commit and rollback to the block"
        ) from error


@cache
def _can_pipeline() -> bool:
    return bool(sys.modules["psycopg"].Pipeline.is_supported())


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of a driver's error; "" if it has none."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


@cache
def _generators() -> Any:
    from psycopg import generators

    return generators


@cache
def _plain_rows() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


class PostgresqlDatabase(Database):
    """PostgreSQL, and what both psycopgs know of a connection, blocking or not."""

    connection: Any

    name = "postgresql"
    row_may_be_late = True
    old = "decided_at < LOCALTIMESTAMP - INTERVAL '60 seconds'"
    limit = " LIMIT 1000"
    begin_block = (
        "SELECT set_config('txbroker.block', %s, true), current_setting('transaction_read_only'), "
        f"(SELECT identity FROM {IDENTITY})"
    )
    create = (
        Database.create + " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"
    )
    has_outbox = True
    create_outbox = (
        f'CREATE TABLE {OUTBOX} (stream varchar(32) COLLATE "C" NOT NULL, number bigint NOT NULL, '
        "broker varchar(32) NOT NULL, messages bytea NOT NULL, PRIMARY KEY (stream, number)) WITH "
        "(autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, "
        "toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000)",
        f"ALTER TABLE {OUTBOX} ALTER COLUMN messages SET STORAGE EXTERNAL",  # frames are compressed by clients
        f'CREATE TABLE {REFUSED} (stream varchar(32) COLLATE "C" NOT NULL, number bigint NOT NULL, '
        "broker varchar(32) NOT NULL, messages bytea NOT NULL, error text NOT NULL, "
        "refused_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (stream, number))",
    )
    refuse_row = Database.refuse_row.replace("%s", "CAST(%s AS text)", 1)
    insert_row = (
        f"INSERT INTO {OUTBOX} (stream, number, broker, messages) SELECT CAST(%s AS varchar), CAST(%s AS bigint), "
        f"CAST(%s AS varchar), CAST(%s AS bytea) FROM {IDENTITY} "
        f"WHERE identity LIKE %s AND current_setting('txbroker.block', true) = %s RETURNING {_FORCED}"
    )
    insert_or_fail = (
        f"INSERT INTO {OUTBOX} (stream, number, broker, messages) VALUES ($1, (SELECT CAST($2 AS bigint) "
        f"FROM {IDENTITY} WHERE identity LIKE $3 AND current_setting('txbroker.block', true) = $4), $5, $6) "
        f"RETURNING {_FORCED}"
    )
    """Fails if there is nothing to insert, because it travels with COMMIT: in a transaction that has failed that is a
    rollback.
    """
    insert_decision = (
        f"INSERT INTO {TABLE} (xid, decision, broker) SELECT CAST(%s AS varchar), '{COMMITTED}', CAST(%s AS varchar) "
        f"FROM {IDENTITY} WHERE identity LIKE %s AND current_setting('txbroker.block', true) = %s RETURNING {_FORCED}"
    )

    async def mark(self, token: str) -> str | None:
        """Mark, and check that the transaction can be written to."""
        result = await self.execute(self.begin_block, (token,))
        _, read_only, identity = result.rows[0]
        if read_only == "on":
            raise _read_only()
        return None if identity is None else str(identity)

    async def decide(self, token: str, key: str, broker: str) -> None:
        """Insert the row if the mark is still there, and turn forced commits on: an unforced commit would
        decide nothing.
        """
        try:
            pattern = identity_pattern(table_of(key))
            result = await self.execute(self.insert_decision, (key, broker, pattern, token))
        except Exception as error:
            if sqlstate(error) == "25006":
                raise _read_only() from error
            raise
        if not result.rows:
            await self._refuse_place(token)

    async def put(self, token: str, row: OutboxRow) -> None:
        """Insert the row if the mark is still there, and turn forced commits on."""
        try:
            result = await self.execute(self.insert_row, (*row[:4], identity_pattern(row.table), token))
        except Exception as error:
            if sqlstate(error) == "25006":
                raise _read_only() from error
            raise
        if not result.rows:
            await self._refuse_place(token)

    async def _refuse_place(self, token: str) -> None:
        mark = await self.execute("SELECT current_setting('txbroker.block', true)")
        if mark.rows[0][0] != token:
            raise lost_mark("the mark of its transaction is gone")
        raise another_table(identity_of(await self.execute(self.read_identity)))

    async def is_marked(self) -> bool:
        """Return whether the setting exists, which ends with its transaction."""
        return bool((await self.execute("SELECT current_setting('txbroker.block', true)")).rows[0][0])

    async def check_table(self) -> None:
        """Check that its rows survive a crash, and that its key is checked at once."""
        result = await self.execute(
            "SELECT c.relpersistence = 'p', EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a "
            "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = c.oid AND a.attname = 'xid' "
            "AND i.indnkeyatts = 1 AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL) "
            "FROM pg_class AS c WHERE c.oid = to_regclass(%s)",
            (TABLE,),
        )
        logged, unique = result.rows[0]
        if not logged:
            raise errors.DecisionTableRefused(
                f"the table {TABLE} is UNLOGGED or temporary: a crash empties it, and nothing would be decided any "
                f"more; nothing was done. ALTER TABLE {TABLE} SET LOGGED"
            )
        if not unique:
            raise no_unique_key()

    async def home(self) -> str:
        """Return the cluster, the database and the table; a restored dump has others."""
        result = await self.execute(
            "SELECT s.system_identifier || '/' || d.oid || '/' || to_regclass(%s)::oid "
            "FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database()",
            (TABLE,),
        )
        return str(result.rows[0][0])

    async def is_forced(self) -> bool:
        """Return True: others see a commit only when it has been forced."""
        return True

    def patience(self, seconds: float) -> Sequence[str]:
        """Bound the wait for this transaction only: the connection may be a pool's."""
        return (
            f"SET LOCAL lock_timeout = '{max(1, round(seconds * 1000))}ms'",
            "SET LOCAL synchronous_commit = on",
        )

    def patience_for_deleting(self, seconds: float) -> Sequence[str]:
        """Bound the wait without a force: forcing each deletion of each program would cost more than all other work."""
        return (*self.patience(seconds), "SET LOCAL synchronous_commit = off")

    def is_missing_table(self, error: Exception) -> bool:
        """Return whether it is 42P01, or no right to see the table."""
        return sqlstate(error) in ("42P01", "42501")

    def is_duplicate(self, error: Exception) -> bool:
        """Return whether it is a unique violation."""
        return sqlstate(error) == "23505"

    def is_blocked(self, error: Exception) -> bool:
        """Return whether it is a lock timeout, a cancellation, a deadlock, or a serialization failure."""
        return sqlstate(error) in ("55P03", "57014", "40P01", "40001")

    # -- a transaction -----------------------------------------------------------------------------

    @property
    def transaction_status(self) -> int:
        """The PQTRANS value of libpq."""
        return int(self.connection.info.transaction_status)

    def condition(self) -> Condition:
        """Return the state as libpq knows it."""
        status = self.transaction_status
        if getattr(self.connection, "_pipeline", None) is not None:
            return Condition.PIPELINED
        if getattr(self.connection, "_num_transactions", 0):
            return Condition.BORROWED  # of psycopg's connection.transaction()
        if status in (_ACTIVE, _IN_TRANSACTION):
            return Condition.OPEN
        if status == _IN_ERROR:
            return Condition.FAILED
        return Condition.AUTOCOMMIT if self.connection.autocommit and status == _IDLE else Condition.IDLE

    def did_not_commit(self, error: BaseException) -> bool:
        """Return whether the server answered "no", or COMMIT was never sent: the connection is whole and knows it."""
        if not isinstance(error, Exception) or self.connection.closed:
            return False
        status = self.connection.info.transaction_status
        if status in (_IN_TRANSACTION, _IN_ERROR):
            return True
        state = sqlstate(error)
        return status == _IDLE and bool(state) and not state.startswith(_UNKNOWN_CLASSES)

    def connector(self) -> Connector:
        """Return a connector with the same parameters, password included."""
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


class _Psycopg(PostgresqlDatabase):
    """The common part of psycopg's connections of both kinds."""

    @property
    def transaction_status(self) -> int:
        """The PQTRANS value, without psycopg's enumeration, because each block asks for it several times."""
        status: int = self.connection.pgconn.transaction_status
        return status

    @property
    def commits_with_row(self) -> bool:
        """Whether libpq has pipelines (14 and newer)."""
        return _can_pipeline()

    def _insert_and_commit(self, token: str, row: OutboxRow) -> Generator[Any, Any, None]:
        """Send the row and COMMIT in one message, below psycopg's cursors: they take 140 calls for it, this takes 25.

        The statement is prepared once for each connection, as psycopg would do it from its fifth use on.
        """
        connection, sends = self.connection, _generators()
        pgconn = connection.pgconn
        texts = (row.stream, str(row.number), identity_pattern(row.table), token, row.broker)
        values = [*map(str.encode, texts), row.messages]
        prepares = connection.prepare_threshold is not None
        is_new = prepares and connection not in _prepared
        pgconn.enter_pipeline_mode()
        try:
            if is_new:
                pgconn.send_prepare(_PUT, self.insert_or_fail.encode())
            if prepares:
                pgconn.send_query_prepared(_PUT, values, _PUT_FORMATS)
            else:
                pgconn.send_query_params(self.insert_or_fail.encode(), values, None, _PUT_FORMATS)
            pgconn.send_query_params(b"COMMIT", None)
            pgconn.pipeline_sync()
            results = yield from sends.execute(pgconn)
            while results[-1].status != _SYNC:
                results += yield from sends.fetch_many(pgconn)
        finally:
            if pgconn.transaction_status not in (_ACTIVE, _UNKNOWN):  # else interrupted or lost: it is closed
                pgconn.exit_pipeline_mode()
        if is_new and results[0].status == _COMMAND_OK:
            _prepared.add(connection)
        for result in results:
            if result.status == _FATAL:
                error = sys.modules["psycopg"].errors.error_from_result(result)
                if (
                    sqlstate(error) == "26000"
                ):  # DEALLOCATE ALL, DISCARD ALL: the next block prepares it again
                    _prepared.discard(connection)
                _refuse_lost_place(error)
                raise error

    def _begins_plainly(self) -> bool:
        connection = self.connection
        return connection.isolation_level is connection.read_only is connection.deferrable is None

    def _begin_marked(self, token: str) -> Generator[Any, Any, None]:
        """Send the message as psycopg sends its own BEGIN: simple protocol, waiting as its connection waits."""
        pgconn = self.connection.pgconn
        pgconn.send_query(f"BEGIN; SET LOCAL txbroker.block = '{token}'".encode())
        psycopg = sys.modules["psycopg"]
        for result in (yield from _generators().execute(pgconn)):
            if result.status != _COMMAND_OK:
                raise psycopg.errors.error_from_result(result)


class PsycopgDatabase(_Psycopg, DbApiDatabase):
    """psycopg, blocking."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, "format")
        self._cursor: Any = None

    async def begin_marked(self, token: str) -> bool:
        """Begin and mark in one message instead of two; False if the connection has options for its transactions."""
        if not self._begins_plainly():
            return False
        connection = self.connection
        with connection.lock:
            connection.wait(self._begin_marked(token))
        return True

    async def commit_with(self, token: str, row: OutboxRow) -> None:
        """Insert the row and commit, sent together."""
        connection = self.connection
        with connection.lock:
            connection.wait(self._insert_and_commit(token, row))

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement, all of a block with one cursor: making one, and descriptions of rows, takes 30 µs each."""
        cursor = self._plain_cursor()
        cursor.execute(statement, parameters or None)
        return Result(cursor.fetchall() if cursor.pgresult.ntuples else [], cursor.rowcount)

    def _plain_cursor(self) -> Any:
        if self._cursor is None:
            self._cursor = self.connection.cursor(row_factory=_plain_rows())
        return self._cursor


class Psycopg2Database(PostgresqlDatabase, DbApiDatabase):
    """psycopg2."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, "format")

    def cursor(self) -> Any:
        """Return a cursor with plain rows, whatever the connection makes of rows."""
        return self.connection.cursor(cursor_factory=sys.modules["psycopg2"].extensions.cursor)


class AsyncPsycopgDatabase(_Psycopg):
    """psycopg's AsyncConnection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.handle: object = connection
        self._cursor: Any = None

    async def begin_marked(self, token: str) -> bool:
        """Begin and mark in one message instead of two; False if the connection has options for its transactions."""
        if not self._begins_plainly():
            return False
        connection = self.connection
        async with connection.lock:
            await connection.wait(self._begin_marked(token))
        return True

    async def commit_with(self, token: str, row: OutboxRow) -> None:
        """Insert the row and commit, sent together."""
        connection = self.connection
        async with connection.lock:
            await connection.wait(self._insert_and_commit(token, row))

    def _plain_cursor(self) -> Any:
        if self._cursor is None:
            self._cursor = self.connection.cursor(row_factory=_plain_rows())
        return self._cursor

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement."""
        cursor = self._plain_cursor()
        await cursor.execute(statement, parameters or None)
        return Result(await cursor.fetchall() if cursor.pgresult.ntuples else [], cursor.rowcount)

    async def commit(self) -> None:
        """Commit."""
        await self.connection.commit()

    async def rollback(self) -> None:
        """Roll back."""
        await self.connection.rollback()

    async def close(self) -> None:
        """Close the connection."""
        await self.connection.close()


def adapt(connection: Any) -> PsycopgDatabase | Psycopg2Database | AsyncPsycopgDatabase:
    """Return the adapter for a connection of psycopg or psycopg2."""
    kind = _kind(connection.__class__)
    if kind is None:
        raise no_connection(connection)
    return kind(connection)


@cache
def _kind(
    connection: type,
) -> type[PsycopgDatabase] | type[Psycopg2Database] | type[AsyncPsycopgDatabase] | None:
    if not hasattr(connection, "info") or not hasattr(connection, "commit"):
        return None
    if any(kind.__module__.partition(".")[0] == "psycopg2" for kind in connection.__mro__):
        return Psycopg2Database
    if any(kind.__name__ == "AsyncConnection" for kind in connection.__mro__):
        return AsyncPsycopgDatabase
    return PsycopgDatabase
