"""The calls that a block needs of a user's database, and the SQL of the decision table there.

:class:`Database` has the calls that any database with savepoints and unique keys understands; each database has a
subclass. A statement's parameters are ``%s`` here; each class replaces them by its driver's. Methods are coroutines, so
that one protocol (:mod:`txbroker.databases.protocol`) serves every client; those of a blocking driver never suspend:
:func:`txbroker.databases.adapters.adapter.run` runs them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from txbroker import errors

TABLE = "txbroker_decision"
IDENTITY = "txbroker_identity"
"""The table whose one row identifies the decision table. It is separate, because rows come and go in the other."""
OUTBOX = "txbroker_outbox"
"""The table of blocks that only send: their messages, until the broker has them."""
REFUSED = "txbroker_outbox_refused"
"""The table of blocks whose messages the broker will never take."""

COMMITTED = "committed"
ROLLED_BACK = "rolled back"
CONTRADICTED = "contradicted"

LAYOUT = 2
MAX_ERROR = 500
"""Characters of an error that a refused row keeps."""
BLOCK = "txbroker_block"

ROWS = 100
"""How many rows of an outbox are read at once."""


class Result(NamedTuple):
    """The result of a statement: its rows (none if it has no result) and how many rows it changed (-1: unknown)."""

    rows: list[Sequence[Any]]
    changed: int


class OutboxRow(NamedTuple):
    """A row of the outbox: ``stream`` is 32 hexadecimal digits, ``messages`` a payload of
    :mod:`txbroker.databases.outbox.payload`; ``table`` is the identity of the decision table beside it.
    """

    stream: str
    number: int
    broker: str
    messages: bytes
    table: str


Connector = Callable[[], Any]
"""Opens one more DB-API connection to the same database, for a resolver."""


class Condition(enum.Enum):
    """The transaction state of a connection."""

    IDLE = "no transaction is open; the next statement begins one, or `begin` does"
    OPEN = "a transaction is open"
    FAILED = "the open transaction can only be rolled back"
    AUTOCOMMIT = "no transaction is open, and each statement would be committed at once"
    BORROWED = "a transaction block of the driver is open, which alone may commit"
    PIPELINED = "statements are sent without waiting for their answers"


def _nothing() -> None:
    """Do nothing: the database has forced the commit when it answers."""


class Database:
    """A user's connection or session; how to use it, and what its errors mean.

    ``handle`` is the object for which there may be one block at a time (the driver's connection). Errors of the driver
    are passed on unchanged. The block's mark is a savepoint: it ends with its transaction.
    """

    handle: object
    """The object that may be in one block at a time; None before :meth:`open`."""

    name = "generic"
    create = (
        f"CREATE TABLE {TABLE} (xid VARCHAR(64) NOT NULL PRIMARY KEY, decision VARCHAR(20) NOT NULL, "
        "broker VARCHAR(32) NOT NULL, decided_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL)"
    )
    create_identity = f"CREATE TABLE {IDENTITY} (identity VARCHAR(255) NOT NULL)"
    has_outbox = False
    """Whether blocks that only send may leave their messages in the database; unknown databases have no known type for
    them.
    """
    create_outbox: Sequence[str] = ()
    """Statements that make the outbox's two tables, if :attr:`has_outbox`."""
    old = ""
    """A condition for rows that no living program is about to delete."""
    limit = ""
    """The clause that bounds a listing; not every database has LIMIT."""
    end_first = "commit or roll back first"
    """What to do about a transaction that is open where none may be."""
    reading_begins = True
    """Whether a transaction begins before reading, to see one moment; SQLite's begin takes the write lock."""

    probe = f"SELECT xid FROM {TABLE} WHERE xid = ''"
    read_identity = f"SELECT identity FROM {IDENTITY}"
    read = f"SELECT decision FROM {TABLE} WHERE xid = %s"
    insert = f"INSERT INTO {TABLE} (xid, decision, broker) VALUES (%s, %s, %s)"
    insert_decision = (
        f"INSERT INTO {TABLE} (xid, decision, broker) SELECT %s, '{COMMITTED}', %s FROM {IDENTITY} "
        "WHERE identity LIKE %s"
    )
    update = f"UPDATE {TABLE} SET decision = %s WHERE xid = %s"
    insert_identity = f"INSERT INTO {IDENTITY} (identity) VALUES (%s)"
    update_identity = f"UPDATE {IDENTITY} SET identity = %s"
    release = f"RELEASE SAVEPOINT {BLOCK}"

    probe_outbox = f"SELECT number FROM {OUTBOX} WHERE stream = ''"
    insert_row = (
        f"INSERT INTO {OUTBOX} (stream, number, broker, messages) SELECT %s, %s, %s, %s FROM {IDENTITY} "
        "WHERE identity LIKE %s"
    )
    insert_any_row = f"INSERT INTO {OUTBOX} (stream, number, broker, messages) VALUES (%s, %s, %s, %s)"
    read_sizes = (
        f"SELECT number, LENGTH(messages) FROM {OUTBOX} WHERE stream = %s AND number > %s ORDER BY number "
        f"LIMIT {ROWS}"
    )
    read_rows = (
        f"SELECT number, messages FROM {OUTBOX} WHERE stream = %s AND number > %s AND number <= %s "
        "ORDER BY number"
    )
    count_rows = (
        f"SELECT stream, MIN(number), MAX(number), COUNT(*) FROM {OUTBOX} WHERE broker = %s GROUP BY stream "
        "ORDER BY stream"
    )
    count_rows_up_to = f"SELECT COUNT(*) FROM {OUTBOX} WHERE stream = %s AND number <= %s"
    count_rows_elsewhere = (
        f"SELECT broker, COUNT(*) FROM {OUTBOX} WHERE broker <> %s GROUP BY broker ORDER BY broker"
    )
    read_row = f"SELECT messages FROM {OUTBOX} WHERE stream = %s AND number = %s"
    read_numbers = (
        f"SELECT number FROM {OUTBOX} WHERE stream = %s AND number <= %s ORDER BY number LIMIT {ROWS}"
    )
    raise_generation = f"UPDATE {IDENTITY} SET identity = %s WHERE identity = %s"
    refuse_row = (
        f"INSERT INTO {REFUSED} (stream, number, broker, messages, error) SELECT stream, number, broker, messages, %s "
        f"FROM {OUTBOX} WHERE stream = %s AND number = %s"
    )
    refuse_all = (
        f"INSERT INTO {REFUSED} (stream, number, broker, messages, error) SELECT stream, number, broker, messages, %s "
        f"FROM {OUTBOX}"
    )
    delete_all_rows = f"DELETE FROM {OUTBOX}"
    list_refused = (
        f"SELECT stream, number FROM {REFUSED} WHERE broker = %s ORDER BY refused_at, stream, number"
    )
    read_refused = (
        f"SELECT stream, number, error, refused_at, messages FROM {REFUSED} WHERE stream = %s AND number = %s"
    )
    delete_refused = f"DELETE FROM {REFUSED} WHERE stream = %s AND number = %s"

    # -- a transaction -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Get hold of the connection, if this is a session; called first. Raises Misuse for an impossible one."""

    def condition(self) -> Condition:
        """Return whether it is in a transaction, as far as the client side knows; asks the database nothing."""
        raise NotImplementedError

    async def flush(self) -> None:
        """Run the statements that a session still holds back; called before the decision."""

    async def begin(self) -> None:
        """Begin a transaction, if the first statement does not do that by itself. Called only when IDLE."""

    async def take_write_lock(self) -> None:
        """Lock before a transaction that has begun already reads, where a reader may be refused to write."""

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement inside the transaction; ``%s`` stands for a parameter."""
        raise NotImplementedError

    async def commit(self) -> None:
        """Commit the transaction."""
        raise NotImplementedError

    async def rollback(self) -> None:
        """Roll the transaction back; does nothing if there is none."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connection: the transaction is rolled back, unless COMMIT has arrived."""
        raise NotImplementedError

    def did_not_commit(self, error: BaseException) -> bool:
        """Return whether the transaction certainly was not and will not be committed, after :meth:`commit` raised
        ``error``.

        False if there is any doubt: then the resolver finds out.
        """
        raise NotImplementedError

    def connector(self) -> Connector | None:
        """Return a function that opens further connections to the same database; None if that is impossible."""
        return None

    # -- a block -----------------------------------------------------------------------------------

    async def begin_marked(self, token: str) -> bool:  # noqa: ARG002
        """Run step 1 in one message, if the table is known already. Return False if that is impossible; nothing
        was done.
        """
        return False

    async def mark(self, token: str) -> str | None:  # noqa: ARG002
        """Run step 1: mark the transaction as the block's, return the identity row. Raises if it is unfit."""
        await self.execute(f"SAVEPOINT {BLOCK}")
        return identity_of(await self.execute(self.read_identity))

    async def decide(self, token: str, key: str, broker: str) -> None:  # noqa: ARG002
        """Run step 3: insert the row, if transaction and table are still those of step 1; raises if they are not."""
        await self._release_mark()
        result = await self.execute(self.insert_decision, (key, broker, identity_pattern(table_of(key))))
        if not (result.changed > 0 or (await self.execute(self.read, (key,))).rows):
            raise another_table(identity_of(await self.execute(self.read_identity)))

    async def put(self, token: str, row: OutboxRow) -> None:  # noqa: ARG002
        """Insert a row of the outbox, if transaction and table are still those of step 1; raises if they are not."""
        await self._release_mark()
        result = await self.execute(self.insert_row, (*row[:4], identity_pattern(row.table)))
        if result.changed == 0:
            raise another_table(identity_of(await self.execute(self.read_identity)))

    @property
    def commits_with_row(self) -> bool:
        """Whether :meth:`commit_with` is to be used in place of :meth:`put` and :meth:`commit`."""
        return False

    row_may_be_late = False
    """Whether a row may come to the database together with its COMMIT, though its program is gone: then nothing there
    tells that its block is open.
    """

    async def commit_with(self, token: str, row: OutboxRow) -> None:
        """Insert a row as :meth:`put` does, and commit, in one message."""
        raise NotImplementedError

    @property
    def source(self) -> object:
        """The driver's connection: what has one stream of blocks, whichever sessions it serves."""
        return self.handle

    def anchor(self) -> object:
        """Return an object with weak references that lives as long as the connection to the database does."""
        return self.handle

    async def _release_mark(self) -> None:
        try:
            await self.execute(self.release)
        except Exception as error:
            if self.is_lost_mark(error):
                raise lost_mark(str(error)) from error
            raise

    async def is_marked(self) -> bool:
        """Return whether the open transaction is a block's; asked before it is rolled back, which may remove
        the mark.
        """
        try:
            await self.execute(self.release)
        except Exception as error:
            if self.is_lost_mark(error):
                return False
            raise
        return True

    async def check_table(self) -> None:
        """Raise DecisionTableRefused for a table that cannot decide."""

    async def home(self) -> str:
        """Return the place of the table, in words that a copy of it does not share; "" if that is unknown."""
        return ""

    def is_elsewhere(self, made: str, here: str) -> bool:
        """Return whether a table that was made at one :meth:`home` and is found at another has been copied."""
        return bool(made and here) and made != here

    async def forcing(self) -> Callable[[], None]:
        """Return what must be done after COMMIT so that the decision is on disk; called before COMMIT. Mostly
        nothing.
        """
        return _nothing

    # -- a resolver --------------------------------------------------------------------------------

    def patience_before(self, seconds: float) -> Sequence[str]:  # noqa: ARG002
        """Return statements to run before a transaction, which bound how long its beginning waits, if it waits."""
        return ()

    def patience(self, seconds: float) -> Sequence[str]:  # noqa: ARG002
        """Return statements for the beginning of a transaction, which bound how long it waits for others' locks."""
        return ()

    async def is_forced(self) -> bool:
        """Return whether visible rows are on disk; if forcing them needs no commit, force them. InnoDB does not
        tell.
        """
        return False

    def leftovers(self) -> str:
        """Return the query for rows of a broker whose program should have deleted them, without contradicted ones."""
        old = f" AND {self.old}" if self.old else ""
        left = f"broker = %s AND decision <> '{CONTRADICTED}'{old}"
        return f"SELECT xid, decision FROM {TABLE} WHERE {left}{self.limit}"

    def contradicted(self) -> str:
        """Return the query for rows of a broker that a person has to handle."""
        return f"SELECT xid FROM {TABLE} WHERE broker = %s AND decision = '{CONTRADICTED}'{self.limit}"

    def patience_for_deleting(self, seconds: float) -> Sequence[str]:
        """Return the same as :meth:`patience` for a deletion, which need not be forced: it can be repeated."""
        return self.patience(seconds)

    def delete(self, count: int) -> str:
        """Return the statement that deletes ``count`` rows by their keys."""
        return f"DELETE FROM {TABLE} WHERE xid IN ({', '.join(['%s'] * count)})"

    def delete_rows(self, count: int) -> str:
        """Return the statement that deletes ``count`` rows of a stream by their keys: a range would lock gaps."""
        return f"DELETE FROM {OUTBOX} WHERE stream = %s AND number IN ({', '.join(['%s'] * count)})"

    # -- errors ------------------------------------------------------------------------------------

    def is_lost_mark(self, error: Exception) -> bool:  # noqa: ARG002
        """Return whether the savepoint did not exist."""
        return True

    def is_missing_table(self, error: Exception) -> bool:
        """Return whether a statement failed because there is no such table. Only asked about our tables."""
        return named(error, "OperationalError", "ProgrammingError", "DatabaseError")

    def is_duplicate(self, error: Exception) -> bool:
        """Return whether an insert failed because the key exists."""
        return named(error, "IntegrityError")

    def is_blocked(self, error: Exception) -> bool:  # noqa: ARG002
        """Return whether an insert gave up waiting for another transaction."""
        return False


def named(error: BaseException, *names: str) -> bool:
    """Return whether an error is of one of these classes of PEP 249, of any driver."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def identity_of(result: Result) -> str | None:
    """Return the identity row's text; None if there is none, or more than one."""
    return _text(result.rows[0][0]) if len(result.rows) == 1 else None


def texts(rows: Iterable[Sequence[Any]]) -> list[tuple[str, ...]]:
    """Return rows as text, whatever types the driver returns."""
    return [tuple(_text(value) for value in row) for row in rows]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)


def table_of(key: str) -> str:
    """Return the identity of the table that decides the xid with this key."""
    return key.partition("-")[0]


def identity_pattern(table: str) -> str:
    """Return the LIKE pattern of the identity row of a table."""
    return f"{LAYOUT} {table} %"


def another_table(found: str | None) -> errors.DecisionTableRefused:
    """Return the error for a table that is not the one with which the block began."""
    return errors.DecisionTableRefused(
        f"the table {TABLE} is another one now ({found!r}) than when the block began: something in the block has "
        "changed the schema or the database (search_path, USE). Rows and messages are rolled back; leave that as it is "
        "between the block's beginning and its end"
    )


def no_unique_key() -> errors.DecisionTableRefused:
    """Return the error for a table whose key cannot decide."""
    return errors.DecisionTableRefused(
        f"the table {TABLE} has no unique key on xid alone that is checked when a row is inserted (it must not be "
        "deferrable): nothing could be decided in it, so nothing was done. Make it as "
        "txbroker.create_decision_table does"
    )


def lost_mark(reason: str) -> errors.Misuse:
    """Return the error for a transaction that is not the one in which the block began."""
    return errors.Misuse(
        "the database transaction in which this block began is gone: something in the block has committed it, rolled "
        f"it back, or run a statement that commits by itself ({reason}). What was committed so stays; what came after "
        "it is rolled back, and none of the block's messages will be seen. Leave commit and rollback to the block"
    )
