"""MariaDB and MySQL with InnoDB, through pymysql, MySQLdb or mysql.connector."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from txbroker import errors
from txbroker.databases.adapters.adapter import no_connection
from txbroker.databases.adapters.database import (
    BLOCK,
    IDENTITY,
    OUTBOX,
    REFUSED,
    TABLE,
    Condition,
    Connector,
    Database,
    Result,
    no_unique_key,
)
from txbroker.databases.adapters.dbapi import DbApiDatabase

_FORCES = (1, 3)
"""Values of innodb_flush_log_at_trx_commit; 3 is MariaDB's, and forces once more."""

_IN_TRANSACTION, _AUTOCOMMIT = 1, 2
"""Flags of the server's status."""

_NO_SUCH_TABLE, _DENIED = 1146, 1142
_NO_SUCH_SAVEPOINT = 1305
_DUPLICATE = 1062
_LOCK_WAIT, _DEADLOCK = 1205, 1213
_REFUSED_COMMITS = (_LOCK_WAIT, _DEADLOCK, 3101)
"""Errors of COMMIT that mean "rolled back"; 3101 is group replication's. (1180, and lost connections, mean nothing.)"""


_BYTEWISE = "CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_ROW = (
    f"stream VARCHAR(32) {_BYTEWISE}, number BIGINT NOT NULL, broker VARCHAR(32) {_BYTEWISE}, "
    "messages LONGBLOB NOT NULL"
)


class MysqlDatabase(DbApiDatabase):
    """A connection to MariaDB or MySQL, with InnoDB. The keys' collation is that of bytes."""

    name = "mysql"
    create = (
        f"CREATE TABLE {TABLE} (xid VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
        "decision VARCHAR(20) NOT NULL, broker VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
        "decided_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE=InnoDB"
    )
    create_identity = f"{Database.create_identity} ENGINE=InnoDB"
    has_outbox = True
    create_outbox = (
        f"CREATE TABLE {OUTBOX} ({_ROW}, PRIMARY KEY (stream, number)) ENGINE=InnoDB",
        f"CREATE TABLE {REFUSED} ({_ROW}, error TEXT NOT NULL, "
        "refused_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (stream, number)) ENGINE=InnoDB",
    )
    old = "decided_at < CURRENT_TIMESTAMP - INTERVAL 60 SECOND"
    limit = " LIMIT 1000"
    begin_block = (
        "SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog, @@global.read_only, "
        f"(SELECT identity FROM {IDENTITY})"
    )

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, "format")

    def condition(self) -> Condition:
        """Return the state by the flags of the server's last answer, if the driver keeps them."""
        if getattr(self.connection, "open", True) in (False, 0):
            return Condition.IDLE  # closed or lost: the server rolls back an open transaction
        status = getattr(self.connection, "server_status", None)
        if status is not None:  # pymysql
            open_now, by_itself = status & _IN_TRANSACTION, status & _AUTOCOMMIT
        elif hasattr(self.connection, "in_transaction"):  # mysql.connector
            open_now = self.connection.in_transaction
            by_itself = not open_now and self.connection.autocommit
        else:  # MySQLdb
            open_now, by_itself = False, getattr(self.connection, "get_autocommit", bool)()
        if open_now:
            return Condition.OPEN
        return Condition.AUTOCOMMIT if by_itself else Condition.IDLE

    @property
    def _tells(self) -> bool:
        """Return whether the driver knows that a transaction is open. MySQLdb does not."""
        return hasattr(self.connection, "server_status") or hasattr(self.connection, "in_transaction")

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement."""
        result = await super().execute(statement, parameters)
        return Result([tuple(row) for row in result.rows], result.changed)

    async def begin(self) -> None:
        """Begin explicitly, because a savepoint begins none; if a transaction may be open unseen, begin by a
        read instead.
        """
        await self.execute("START TRANSACTION" if self._tells else self.read_identity)

    def did_not_commit(self, error: BaseException) -> bool:
        """Return whether the server said that it was rolled back."""
        return number_of(error) in _REFUSED_COMMITS or super().did_not_commit(error)

    def connector(self) -> Connector | None:
        """Return a connector with the same parameters, if the driver keeps them."""
        connection = self.connection
        package = type(connection).__mro__[-2].__module__.partition(".")[0]
        if package != "pymysql":
            return None
        wanted = {
            "host": connection.host,
            "port": connection.port,
            "unix_socket": connection.unix_socket,
            "user": connection.user,
            "password": connection.password,
            "database": connection.db,
        }
        parameters = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in wanted.items()
            if value
        }
        return lambda: sys.modules["pymysql"].connect(**parameters)

    # -- the decision table ------------------------------------------------------------------------

    async def mark(self, token: str) -> str | None:  # noqa: ARG002
        """Mark, and check that committed rows survive a power cut."""
        await self.execute(f"SAVEPOINT {BLOCK}")
        flush, logs, forced, read_only, identity = (await self.execute(self.begin_block)).rows[0]
        if int(flush) not in _FORCES:
            raise errors.DecisionNotDurable(
                f"the server has innodb_flush_log_at_trx_commit = {flush}: a crash could take a committed row back, of "
                "which the broker has been told. Set it to 1, the default; nothing was done"
            )
        if int(logs) and int(forced) != 1 and int(flush) == 1:
            raise errors.DecisionNotDurable(
                f"the server has a binary log and sync_binlog = {forced}: it relies on that log for what it has "
                "committed, and a power cut could take a committed row back, of which the broker has been told. SET "
                "GLOBAL sync_binlog = 1 (or MariaDB's innodb_flush_log_at_trx_commit = 3); nothing was done"
            )
        if int(read_only):
            raise errors.Misuse(
                "the server is read-only (a replica?): a block writes a row that decides. Connect to the primary; "
                "nothing was done"
            )
        return None if identity is None else _text(identity)

    async def home(self) -> str:
        """Return the server's own name, if it has one, and the database; refuses a table without transactions."""
        engine = (
            await self.execute(
                "SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s",
                (TABLE,),
            )
        ).rows
        if engine and _text(engine[0][0]).lower() != "innodb":
            raise errors.DecisionTableRefused(
                f"the table {TABLE} has the engine {_text(engine[0][0])}, which knows no transactions: nothing could "
                f"be decided in it. ALTER TABLE {TABLE} ENGINE=InnoDB; nothing was done"
            )
        names = await self.execute(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')"
        )
        server = " ".join(_text(row[1]) for row in names.rows)
        here = (await self.execute("SELECT DATABASE()")).rows[0][0]
        return f"{server or 'server'}/{_text(here)}"

    async def check_table(self) -> None:
        """Check that its key is unique."""
        keys = await self.execute(
            "SELECT index_name FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = %s "
            "GROUP BY index_name HAVING MAX(non_unique) = 0 AND COUNT(*) = 1 AND MAX(column_name) = 'xid' "
            "AND MAX(sub_part) IS NULL",
            (TABLE,),
        )
        if not keys.rows:
            raise no_unique_key()

    def patience(self, seconds: float) -> Sequence[str]:
        """Bound the wait in whole seconds, for the connection, which is the resolver's own. (MySQL makes 1 of 0.)"""
        return (f"SET SESSION innodb_lock_wait_timeout = {round(seconds)}",)

    def is_lost_mark(self, error: Exception) -> bool:
        """Return whether the savepoint is unknown."""
        return number_of(error) == _NO_SUCH_SAVEPOINT

    def is_missing_table(self, error: Exception) -> bool:
        """Return whether there is no such table, or no right to it."""
        return number_of(error) in (_NO_SUCH_TABLE, _DENIED)

    def is_duplicate(self, error: Exception) -> bool:
        """Return whether the key exists."""
        return number_of(error) == _DUPLICATE

    def is_blocked(self, error: Exception) -> bool:
        """Return whether it was a lock wait timeout, or a deadlock."""
        return number_of(error) in (_LOCK_WAIT, _DEADLOCK)


def number_of(error: BaseException) -> int:
    """Return the server's number of an error; 0 if it has none."""
    number = getattr(error, "errno", None) or (error.args[0] if error.args else 0)
    return number if isinstance(number, int) else 0


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)


def adapt(connection: Any) -> MysqlDatabase:
    """Return the adapter for a connection of a MySQL driver."""
    if not all(hasattr(connection, name) for name in ("cursor", "commit", "rollback")):
        raise no_connection(connection)
    return MysqlDatabase(connection)
