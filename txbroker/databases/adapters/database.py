"""What a block needs of a user's database, and the SQL of the decision table there.

:class:`Database` is what any database with savepoints and unique keys understands; each database has a class above it.
A statement's parameters are ``%s`` here; each class puts in what its driver wants. Methods are coroutines, so that one
protocol (:mod:`txbroker.databases.protocol`) serves every client; those of a blocking driver never suspend:
:func:`txbroker.databases.adapters.adapter.run` runs them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from txbroker import errors

TABLE = "txbroker_decision"
IDENTITY = "txbroker_identity"
"""The table whose one row says which table of decisions this is. It is apart, for rows come and go in the other."""

COMMITTED = "committed"
ROLLED_BACK = "rolled back"
CONTRADICTED = "contradicted"

LAYOUT = 1
BLOCK = "txbroker_block"


class Result(NamedTuple):
    """What a statement gave: its rows (none if it has no result) and how many rows it changed (-1: not told)."""

    rows: list[Sequence[Any]]
    changed: int


Connector = Callable[[], Any]
"""Opens one more DB-API connection to the same database, for a resolver."""


class Condition(enum.Enum):
    """Whether a connection is in a transaction."""

    IDLE = "no transaction is open; the next statement begins one, or `begin` does"
    OPEN = "a transaction is open"
    FAILED = "the open transaction can only be rolled back"
    AUTOCOMMIT = "no transaction is open, and each statement would be committed at once"
    BORROWED = "a transaction block of the driver is open, which alone may commit"
    PIPELINED = "statements are sent without waiting for their answers"


def _nothing() -> None:
    """The database has forced it when it answers."""


class Database:
    """One connection, or session, of the user; how to speak to it, and what its errors mean.

    ``handle`` is the thing of which there may be one block at a time (the driver's connection). Every error of the
    driver is let through as it is. The block's mark is a savepoint: it is gone when its transaction is.
    """

    handle: object
    """What may be in one block at a time; None before :meth:`open` has got hold of it."""

    name = "generic"
    create = (
        f"CREATE TABLE {TABLE} (xid VARCHAR(64) NOT NULL PRIMARY KEY, decision VARCHAR(20) NOT NULL, "
        "broker VARCHAR(32) NOT NULL, decided_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL)"
    )
    create_identity = f"CREATE TABLE {IDENTITY} (identity VARCHAR(255) NOT NULL)"
    old = ""
    """A condition for rows that no living program is about to delete."""
    limit = ""
    """How a listing is bounded; not every database knows LIMIT."""
    end_first = "commit or roll back first"
    """What to do about a transaction that is open where none may be."""
    reading_begins = True
    """Whether one begins before reading, so as to see one moment; SQLite's begin takes the write lock."""

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

    # -- a transaction -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Before anything else: get hold of the connection, if this is a session; raises Misuse for what cannot be."""

    def condition(self) -> Condition:
        """Whether it is in a transaction, as far as the client side knows; asks the database nothing."""
        raise NotImplementedError

    async def flush(self) -> None:
        """Before the decision: run the statements that a session still holds back."""

    async def begin(self) -> None:
        """Begin a transaction, if the first statement does not do that by itself. Called only when IDLE."""

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement inside the transaction; ``%s`` stands for a parameter."""
        raise NotImplementedError

    async def commit(self) -> None:
        """Commit the transaction."""
        raise NotImplementedError

    async def rollback(self) -> None:
        """Roll the transaction back; nothing if there is none."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connection: the transaction is rolled back, unless COMMIT has arrived."""
        raise NotImplementedError

    def did_not_commit(self, error: BaseException) -> bool:
        """After :meth:`commit` raised ``error``: whether the transaction certainly was not and will not be committed.

        False if there is any doubt: then the resolver finds out.
        """
        raise NotImplementedError

    def connector(self) -> Connector | None:
        """A way to open further connections to the same database; None if that cannot be known."""
        return None

    # -- a block -----------------------------------------------------------------------------------

    async def begin_marked(self, token: str) -> bool:  # noqa: ARG002
        """Step 1 in one message, where the table is known already. False: not possible here, nothing was done."""
        return False

    async def mark(self, token: str) -> str | None:  # noqa: ARG002
        """Step 1: mark the transaction as the block's, return the identity row. Raises what makes it unfit."""
        await self.execute(f"SAVEPOINT {BLOCK}")
        return identity_of(await self.execute(self.read_identity))

    async def decide(self, token: str, key: str, broker: str) -> None:  # noqa: ARG002
        """Step 3: insert the row, if transaction and table are still those of step 1; raises if they are not."""
        try:
            await self.execute(self.release)
        except Exception as error:
            if self.is_lost_mark(error):
                raise lost_mark(str(error)) from error
            raise
        result = await self.execute(self.insert_decision, (key, broker, identity_pattern(key)))
        if not (result.changed > 0 or (await self.execute(self.read, (key,))).rows):
            raise another_table(identity_of(await self.execute(self.read_identity)))

    async def is_marked(self) -> bool:
        """Whether the open transaction is a block's; asked before it is rolled back, for the mark may be gone then."""
        try:
            await self.execute(self.release)
        except Exception as error:
            if self.is_lost_mark(error):
                return False
            raise
        return True

    async def check_table(self) -> None:
        """Raise DecisionTableRefused for a table in which nothing can be decided."""

    async def home(self) -> str:
        """Where the table is, in words that a copy of it does not share; "" if that cannot be known."""
        return ""

    def is_elsewhere(self, made: str, here: str) -> bool:
        """Whether a table that was made at one :meth:`home` and is found at another has been copied."""
        return bool(made and here) and made != here

    async def forcing(self) -> Callable[[], None]:
        """Asked before COMMIT: what is to be done after it, so that the decision is on disk. Mostly nothing."""
        return _nothing

    # -- a resolver --------------------------------------------------------------------------------

    def patience_before(self, seconds: float) -> Sequence[str]:  # noqa: ARG002
        """Statements before a transaction begins that bound how long its beginning waits, where that waits."""
        return ()

    def patience(self, seconds: float) -> Sequence[str]:  # noqa: ARG002
        """Statements at the beginning of a transaction that bound how long it waits for others' locks."""
        return ()

    async def is_forced(self) -> bool:
        """Whether what can be seen is on disk now; where that takes no commit, it is seen to. InnoDB does not say."""
        return False

    def leftovers(self) -> str:
        """Rows of a broker that should have been deleted by whoever decided: contradicted ones wait for a person."""
        old = f" AND {self.old}" if self.old else ""
        left = f"broker = %s AND decision <> '{CONTRADICTED}'{old}"
        return f"SELECT xid, decision FROM {TABLE} WHERE {left}{self.limit}"

    def contradicted(self) -> str:
        """Rows of a broker of which a person has to know."""
        return f"SELECT xid FROM {TABLE} WHERE broker = %s AND decision = '{CONTRADICTED}'{self.limit}"

    def patience_for_deleting(self, seconds: float) -> Sequence[str]:
        """The same before deleting, which need not be forced: what is deleted again is left over once more."""
        return self.patience(seconds)

    def delete(self, count: int) -> str:
        """Delete so many rows by their keys."""
        return f"DELETE FROM {TABLE} WHERE xid IN ({', '.join(['%s'] * count)})"

    # -- errors ------------------------------------------------------------------------------------

    def is_lost_mark(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether the savepoint was not there."""
        return True

    def is_missing_table(self, error: Exception) -> bool:
        """Whether a statement failed because there is no such table. Only asked about ours."""
        return named(error, "OperationalError", "ProgrammingError", "DatabaseError")

    def is_duplicate(self, error: Exception) -> bool:
        """Whether an insert failed because the key is there."""
        return named(error, "IntegrityError")

    def is_blocked(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether an insert gave up waiting for somebody else's transaction."""
        return False


def named(error: BaseException, *names: str) -> bool:
    """Whether it is one of these classes of PEP 249, of whatever driver."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def identity_of(result: Result) -> str | None:
    """The identity row's text; None if there is none, or more than one."""
    return _text(result.rows[0][0]) if len(result.rows) == 1 else None


def texts(rows: Iterable[Sequence[Any]]) -> list[tuple[str, ...]]:
    """Rows of text, whatever the driver makes of text."""
    return [tuple(_text(value) for value in row) for row in rows]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)


def identity_pattern(key: str) -> str:
    """What the identity row of the table that decides this xid is LIKE."""
    return f"{LAYOUT} {key.partition('-')[0]} %"


def another_table(found: str | None) -> errors.DecisionTableRefused:
    """The error for a table that is not the one with which the block began."""
    return errors.DecisionTableRefused(
        f"the table {TABLE} is another one now ({found!r}) than when the block began: something in the block has "
        "changed the schema or the database (search_path, USE). Rows and messages are rolled back; leave that as it is "
        "between the block's beginning and its end"
    )


def no_unique_key() -> errors.DecisionTableRefused:
    """The error for a table whose key does not decide."""
    return errors.DecisionTableRefused(
        f"the table {TABLE} has no unique key on xid alone that is checked when a row is inserted (it must not be "
        "deferrable): nothing could be decided in it, so nothing was done. Make it as "
        "txbroker.create_decision_table does"
    )


def lost_mark(reason: str) -> errors.Misuse:
    """The error for a transaction that is not the one in which the block began."""
    return errors.Misuse(
        "the database transaction in which this block began is gone: something in the block has committed it, rolled "
        f"it back, or run a statement that commits by itself ({reason}). What was committed so stays; what came after "
        "it is rolled back, and none of the block's messages will be seen. Leave commit and rollback to the block"
    )
