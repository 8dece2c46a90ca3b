"""The adapters of Session, scoped_session and Connection, and of their asynchronous versions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import Connection, Engine, TwoPhaseTransaction, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from txbroker import errors
from txbroker.databases.adapters.adapter import kind_of
from txbroker.databases.adapters.database import Condition, Result, lost_mark
from txbroker.databases.sqlalchemy.driver import DriverDatabase, as_driver

Through = Callable[[Callable[[], None]], Awaitable[None]]
"""How SQLAlchemy's work is run: directly, or in a greenlet for its asynchronous versions."""


async def directly(work: Callable[[], None]) -> None:
    """Run work directly, for blocking ones."""
    work()


def in_greenlets(outer: Any) -> Through:
    """Return a function that runs work for an AsyncSession or AsyncConnection."""

    async def through(work: Callable[[], None]) -> None:
        await asyncio.sleep(0)  # the blocking client notices here that it must not go on
        await outer.run_sync(lambda _: work())

    return through


class Owned(DriverDatabase):
    """The common part of SessionDatabase and ConnectionDatabase: SQLAlchemy commits, and only the block has it do so.

    The event ``commit`` of the Connection comes last before COMMIT, whatever asked for it. In it a commit that is not
    the block's is refused, and it shows that COMMIT was sent at all.
    """

    def __init__(self, through: Through) -> None:
        self._through = through
        self._transaction: object = None
        self._refused: Condition | None = None
        self._began = self._marked = self._listening = self._ending = self._sent = False

    @property
    def handle(self) -> object:
        """SQLAlchemy's Connection, None before :meth:`open`."""
        return vars(self).get("connection")

    def hold(self, connection: Connection, began: bool) -> None:
        """Keep the Connection; ``began``: its transaction was begun for the block, and ends if the block is refused."""
        super().__init__(connection)
        self._transaction = self.current()
        self._began = began
        if began and self.driver.condition() is Condition.AUTOCOMMIT:
            self._refused = Condition.AUTOCOMMIT
            self.end_refused()

    def condition(self) -> Condition:
        """Return the state as the driver's connection knows it, as long as that is ours."""
        if self._marked and self.current() is not self._transaction:
            return Condition.IDLE
        return self._refused or super().condition()

    @property
    def is_given_back(self) -> bool:
        """Return whether the Connection must be got again: making the decision table commits several times."""
        return not self._marked and self.current() is not self._transaction

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement."""
        if self.is_given_back:
            await self.open()
        return await super().execute(statement, parameters)

    def marked(self) -> None:
        """Note that the block has begun: from now on only it commits."""
        event.listen(self.connection, "commit", self._before_commit)
        self._marked = self._listening = True

    def check_same_transaction(self) -> None:
        """Raise if the driver's connection has another owner by now."""
        if self.current() is not self._transaction:
            raise lost_mark("SQLAlchemy has ended its transaction")

    def _before_commit(self, _: Connection) -> None:
        if not self._ending:
            raise errors.Misuse(
                "commit() inside of a block of txbroker.atomic, which commits when it ends: nothing was committed by "
                "this. Leave it out (or use txbroker.databases.sqlalchemy.carry, if commit() is to carry the messages)"
            )
        self._sent = True

    async def commit(self) -> None:
        """Have SQLAlchemy commit, and check that it did."""
        if not self._marked:  # no block: the decision table is made, past SQLAlchemy
            await super().commit()
        await self._through(self._commit)
        self._forget()

    def _commit(self) -> None:
        same = self.current() is self._transaction
        self._ending = True
        self.end(commit=True)
        if same and self._marked and not self._sent:
            raise errors.Misuse(
                "SQLAlchemy did not commit the transaction of this block: it belongs to somebody else; it is rolled "
                "back, and the messages with it"
            )

    async def rollback(self) -> None:
        """Have SQLAlchemy roll back; objects that a Session held already are kept, if the block has not begun.

        The driver rolls back first: a Connection whose commit has failed sends no ROLLBACK, and a commit that was
        refused in the event, or by a busy SQLite, leaves the transaction open.
        """
        self._forget()
        try:
            if self.current() is self._transaction:
                await super().rollback()
        finally:
            if self._marked or self._began:
                await self._through(lambda: self.end(commit=False))

    async def close(self) -> None:
        """Have SQLAlchemy close the driver's connection, and end the transaction that was on it."""
        self._forget()
        await self._through(self._let_go)

    def _let_go(self) -> None:
        self.connection.invalidate()
        self.end(commit=False)

    def did_not_commit(self, error: BaseException) -> bool:
        """Return True if SQLAlchemy failed before it sent COMMIT: in a flush, or in a listener of the program.

        If its Connection is in no transaction any more, COMMIT succeeded: the error is of a listener after it and,
        whatever its class, means nothing for this transaction.
        """
        if not self._sent:
            return True
        return self.connection.get_transaction() is not None and self.driver.did_not_commit(as_driver(error))

    def _forget(self) -> None:
        if self._listening:
            self._listening = False
            event.remove(self.connection, "commit", self._before_commit)

    def current(self) -> object:
        """Return the outermost open transaction, as SQLAlchemy has it."""
        raise NotImplementedError

    def end(self, commit: bool) -> None:
        """End it, through SQLAlchemy."""
        raise NotImplementedError

    def end_refused(self) -> None:
        """End what was begun for a block that is refused."""
        self.end(commit=False)


class ConnectionDatabase(Owned):
    """A Connection."""

    def __init__(self, connection: Connection, through: Through = directly) -> None:
        super().__init__(through)
        self._own = connection

    async def open(self) -> None:
        """Begin for SQLAlchemy."""
        await self._through(self._open)

    def _open(self) -> None:
        connection = self._own
        if connection.closed:
            raise errors.Misuse("the Connection is closed; nothing was done")
        refuse_foreign(connection, connection.in_nested_transaction(), "Connection", "engine.connect()")
        if isinstance(connection.get_transaction(), TwoPhaseTransaction):
            raise refused_two_phase()
        began = not connection.in_transaction()
        if began:
            connection.begin()
        self.hold(connection, began)

    async def flush(self) -> None:
        """Release savepoints that are still open."""
        await self._through(self._flush)

    def _flush(self) -> None:
        while self.current() is self._transaction and (nested := self._own.get_nested_transaction()):
            nested.commit()

    def current(self) -> object:
        """Return the root transaction."""
        return self._own.get_transaction()

    def end(self, commit: bool) -> None:
        """End it."""
        if commit:
            self._own.commit()
        else:
            self._own.rollback()


class SessionDatabase(Owned):
    """A Session of one database."""

    def __init__(self, session: Session, through: Through = directly) -> None:
        super().__init__(through)
        self.session = session

    async def open(self) -> None:
        """Begin the Session's transaction and get its Connection."""
        await self._through(self._open)

    def _open(self) -> None:
        session = self.session
        if session.twophase:
            raise refused_two_phase()
        refuse_foreign(session, session.in_nested_transaction(), "Session", "Session()")
        began = not session.in_transaction()
        if began and would_join(session):
            raise refused_joining(session)
        connection = connection_of(session)
        check_sole(session)
        if not commits(session, connection):
            raise refused_joining(session)
        self.hold(connection, began)

    async def flush(self) -> None:
        """Flush, and release savepoints that are still open, which flushes too."""
        await self._through(self._flush)

    def _flush(self) -> None:
        if self.current() is not self._transaction:
            return
        while nested := self.session.get_nested_transaction():
            nested.commit()
        self.session.flush()

    def check_same_transaction(self) -> None:
        """Raise if another database has come in, or the transaction is another one."""
        super().check_same_transaction()
        check_sole(self.session)

    def current(self) -> object:
        """Return the root transaction."""
        return self.session.get_transaction()

    def end(self, commit: bool) -> None:
        """End it."""
        if commit:
            self.session.commit()
        else:
            self.session.rollback()


# -- refused uses ----------------------------------------------------------------------------------


def refused_two_phase() -> errors.Misuse:
    """Return the error for a transaction that the database prepares."""
    return errors.Misuse(
        "the transaction is two-phase (twophase=True, begin_twophase()): the program that prepares it decides it, but "
        "a block decides by a row instead. Leave twophase out, or use txbroker.coordinator; nothing was done"
    )


def refuse_foreign(owner: Any, is_nested: bool, name: str, instead: str) -> None:
    """Raise Misuse inside of a savepoint, or of a `with` that alone may commit."""
    if is_nested:
        raise errors.Misuse(
            f"the {name} is inside of a savepoint (begin_nested()), which is not committed by itself: open the block "
            "outside of it; nothing was done"
        )
    if getattr(owner, "_trans_context_manager", None) is not None:  # SQLAlchemy has no public name for it
        raise errors.Misuse(
            f"the {name} is inside of a `with ...begin():`, which alone may commit: open the block of txbroker.atomic "
            f"on a plain `with {instead}` instead of that one, or use txbroker.databases.sqlalchemy.carry; nothing was "
            "done"
        )


def refused_joining(session: Session) -> errors.Misuse:
    """Return the error for a Session whose commit would not commit."""
    return errors.Misuse(
        "the Session has joined a transaction of its Connection, and would not commit it (join_transaction_mode = "
        f"{session.join_transaction_mode!r}): give txbroker.atomic that Connection; nothing was done"
    )


@contextmanager
def _one_bind() -> Iterator[None]:
    try:
        yield
    except UnboundExecutionError as error:
        raise errors.Misuse(
            f"which of its databases this Session is to decide in is not known ({error}): one COMMIT decides, so "
            "give the Session a bind=, or give txbroker.atomic the Connection; nothing was done"
        ) from error


def would_join(session: Session) -> bool:
    """Return whether a Session that has not begun would join its Connection's transaction without committing it."""
    with _one_bind():
        bind = session.get_bind()
    if not isinstance(bind, Connection) or not bind.in_transaction():
        return False
    return session.join_transaction_mode != "control_fully" or bind.in_nested_transaction()


def connection_of(session: Session) -> Connection:
    """Return the Connection of a Session of one database; raises Misuse if it has several, or none."""
    with _one_bind():
        return session.connection()


def connections(session: Session) -> dict[Connection, bool]:
    """Return the Connections of the Session's transaction, and whether it commits them. (There is no public way.)"""
    transaction = session.get_transaction()
    found = {} if transaction is None else transaction._connections
    return {each[0]: each[2] and each[1] is each[0].get_transaction() for each in found.values()}


def commits(session: Session, connection: Connection) -> bool:
    """Return whether the Session's commit is the Connection's."""
    return connections(session).get(connection, False)


def check_sole(session: Session) -> None:
    """Raise Misuse if the Session's transaction is in several databases."""
    if len(connections(session)) > 1:
        raise errors.Misuse(
            "the Session's transaction is in more than one database, and commits them one by one: the messages cannot "
            "be one with both. Use a Session for each, or txbroker.coordinator; nothing was committed"
        )


# -- the choice of the adapter ---------------------------------------------------------------------


def plain_session(session: Any) -> Session:
    """Return the Session itself, of this thread or scope; raises Misuse for another object."""
    if isinstance(session, scoped_session):
        session = session()
    if not isinstance(session, Session):
        raise errors.Misuse(
            f"{kind_of(session)} is no Session (an AsyncSession has `async with txbroker.databases.asyncio.atomic("
            "session, broker)`); nothing was done"
        )
    return session


def adapt(database: Any) -> ConnectionDatabase | SessionDatabase:
    """Return the adapter for a Session, scoped_session, Connection, AsyncSession, async_scoped_session,
    AsyncConnection.
    """
    if isinstance(database, Connection):
        return ConnectionDatabase(database)
    if isinstance(database, (Session, scoped_session)):
        return SessionDatabase(plain_session(database))
    asynchronous = sys.modules.get("sqlalchemy.ext.asyncio")
    if asynchronous is not None:
        if isinstance(database, asynchronous.async_scoped_session):
            database = database()
        if isinstance(database, asynchronous.AsyncSession):
            return SessionDatabase(cast(Session, database.sync_session), in_greenlets(database))
        if isinstance(database, asynchronous.AsyncConnection):
            return ConnectionDatabase(cast(Connection, database.sync_connection), in_greenlets(database))
    if isinstance(database, Engine):
        raise errors.Misuse("an Engine has no transaction: use `with engine.connect()`; nothing was done")
    raise errors.Misuse(
        f"{kind_of(database)} is neither a Session nor a Connection of SQLAlchemy, nor one of their asynchronous "
        "siblings; nothing was done"
    )
