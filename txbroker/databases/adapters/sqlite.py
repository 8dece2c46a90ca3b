"""SQLite, through sqlite3. There is one writer at a time, so a block has the write lock from its beginning."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from txbroker import errors
from txbroker.databases.adapters import file_identity
from txbroker.databases.adapters.adapter import no_connection
from txbroker.databases.adapters.database import (
    OUTBOX,
    REFUSED,
    TABLE,
    Condition,
    Connector,
    Database,
    no_unique_key,
)
from txbroker.databases.adapters.dbapi import DbApiDatabase

_FULL, _EXTRA = 2, 3
_VOLATILE = ("off", "memory")


_ROW = "stream VARCHAR(32) NOT NULL, number INTEGER NOT NULL, broker VARCHAR(32) NOT NULL, messages BLOB NOT NULL"


class SqliteDatabase(DbApiDatabase):
    """A connection of sqlite3."""

    connection: sqlite3.Connection

    name = "sqlite"
    end_first = "commit or roll back first (with Python 3.12's autocommit=False one always is: take another connection)"
    reading_begins = False
    old = "decided_at < datetime('now', '-60 seconds')"
    limit = " LIMIT 1000"
    has_outbox = True
    create_outbox = (
        f"CREATE TABLE {OUTBOX} ({_ROW}, PRIMARY KEY (stream, number))",
        f"CREATE TABLE {REFUSED} ({_ROW}, error TEXT NOT NULL, "
        "refused_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (stream, number))",
    )

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, "qmark")

    def cursor(self) -> sqlite3.Cursor:
        """Return a cursor with plain rows, whatever the connection makes of rows."""
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor

    def condition(self) -> Condition:
        """Return the state as SQLite knows it. With ``isolation_level=None`` or ``autocommit=True`` each statement
        commits.
        """
        try:
            if self.connection.in_transaction:
                return Condition.OPEN
        except sqlite3.ProgrammingError:
            return Condition.IDLE  # closed, which has rolled back
        by_itself = (
            self.connection.isolation_level is None or getattr(self.connection, "autocommit", -1) is True
        )
        return Condition.AUTOCOMMIT if by_itself else Condition.IDLE

    async def begin(self) -> None:
        """Take the write lock now: a block writes, and a later refusal would come after the work was done."""
        if not self.connection.in_transaction:  # as with Python 3.12's autocommit=False it always is
            self.connection.execute("BEGIN IMMEDIATE")

    async def take_write_lock(self) -> None:
        """Write nothing: waits as long as the connection's timeout says, unless the transaction has read already."""
        if self.connection.in_transaction:
            await self.execute(f"DELETE FROM {TABLE} WHERE 0")

    async def commit(self) -> None:
        """Commit."""
        self._end("COMMIT", self.connection.commit)

    async def rollback(self) -> None:
        """Roll back."""
        self._end("ROLLBACK", self.connection.rollback)

    def _end(self, statement: str, method: Callable[[], None]) -> None:
        if getattr(self.connection, "autocommit", -1) is not True:
            method()
        elif self.connection.in_transaction:  # the connection's methods do nothing there
            self.connection.execute(statement)

    def did_not_commit(self, error: BaseException) -> bool:
        """Return whether it was busy, or a deferred constraint: then the transaction is still open."""
        try:
            return isinstance(error, Exception) and self.connection.in_transaction
        except sqlite3.ProgrammingError:
            return False

    def connector(self) -> Connector | None:
        """Return a connector to the same file, with a short wait, because it works in the background."""
        rows: Sequence[Any] = self.cursor().execute("PRAGMA database_list").fetchall()
        path = next((row[2] for row in rows if row[1] == "main"), "")
        if not path:
            return None
        return lambda: sqlite3.connect(path, timeout=1.0, check_same_thread=False)

    # -- the decision table ------------------------------------------------------------------------

    async def mark(self, token: str) -> str | None:
        """Mark, and check that committed rows survive a power cut."""
        path = await _path(self)
        if not path:
            raise errors.DecisionNotDurable(
                "the database is in memory: no other connection could find out how a block ended; use a file. "
                "Nothing was done"
            )
        synchronous = (await self.execute("PRAGMA main.synchronous")).rows[0][0]
        journal = str((await self.execute("PRAGMA main.journal_mode")).rows[0][0]).lower()
        if int(synchronous) < _FULL or journal in _VOLATILE:
            raise errors.DecisionNotDurable(
                f"the connection has synchronous = {synchronous} and journal_mode = {journal}: a power cut could take "
                "a committed row back, of which the broker has been told. Say PRAGMA synchronous = FULL, with any "
                "journal_mode but off and memory, when opening it; nothing was done"
            )
        return await super().mark(token)

    def anchor(self) -> object:
        """Return a function of SQL that the connection holds: connections of sqlite3 have no weak references."""
        anchor = _Anchor()
        self.connection.create_function("txbroker_anchor", 0, anchor)
        return anchor

    async def home(self) -> str:
        """Return the file's identity: a copy has another one."""
        path = await _path(self)
        return file_identity.describe(path) if path else ""

    def is_elsewhere(self, made: str, here: str) -> bool:
        """Compare; parts that a file system does not have, or did not have then, make no difference."""
        return file_identity.contradicts(made, here)

    async def check_table(self) -> None:
        """Check that its key is unique."""
        for index in (await self.execute(f"PRAGMA main.index_list({TABLE})")).rows:
            unique, partial = index[2], index[4]
            columns = [row[2] for row in (await self.execute(f'PRAGMA main.index_info("{index[1]}")')).rows]
            if unique and not partial and columns == ["xid"]:
                return
        raise no_unique_key()

    def patience_before(self, seconds: float) -> Sequence[str]:
        """Bound the wait for the connection, which is the resolver's own: BEGIN IMMEDIATE is what waits."""
        return (f"PRAGMA busy_timeout = {round(seconds * 1000)}",)

    async def forcing(self) -> Callable[[], None]:
        """Return the force of the directory: a commit ends by unlinking the journal, which SQLite forces only
        at EXTRA.
        """
        journal = str((await self.execute("PRAGMA main.journal_mode")).rows[0][0]).lower()
        synchronous = int((await self.execute("PRAGMA main.synchronous")).rows[0][0])
        if journal != "delete" or synchronous >= _EXTRA:
            return await super().forcing()
        return partial(_force, os.path.dirname(await _path(self)))

    async def is_forced(self) -> bool:
        """Force the removal of the journal, which makes the rows valid; the rows themselves are forced already."""
        _force(os.path.dirname(await _path(self)))
        return True

    def is_lost_mark(self, error: Exception) -> bool:
        """Return whether the text says so, because SQLite has no code for it."""
        return "no such savepoint" in str(error)

    def is_missing_table(self, error: Exception) -> bool:
        """Return whether the text says so, because SQLite has no code for it."""
        return "no such table" in str(error)

    def is_duplicate(self, error: Exception) -> bool:
        """Return whether the key exists."""
        return isinstance(error, sqlite3.IntegrityError)

    def is_blocked(self, error: Exception) -> bool:
        """Return whether it is busy or locked."""
        return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


class _Anchor:
    """Lives as long as the connection that has it as a function."""

    def __call__(self) -> None:
        """Return NULL."""


async def _path(database: Database) -> str:
    rows = (await database.execute("PRAGMA database_list")).rows
    path = next((row[2] for row in rows if row[1] in ("main", b"main")), "")
    return os.fsdecode(path) if path else ""


def _force(folder: str) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no directories, and its file system journals their entries itself
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def adapt(connection: Any) -> SqliteDatabase:
    """Return the adapter for a connection of sqlite3."""
    if not isinstance(connection, sqlite3.Connection):
        raise no_connection(connection)
    return SqliteDatabase(connection)
