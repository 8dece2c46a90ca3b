"""The driver's connection below a Connection of SQLAlchemy, for txbroker's own statements, past SQLAlchemy's events.

Its errors are raised as SQLAlchemy's, so that a program catches the same classes as elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from txbroker.databases.adapters import adapter
from txbroker.databases.adapters.database import Condition, Connector, OutboxRow, Result
from txbroker.databases.orm.wrapped import WrappedDatabase

_HOME = "txbroker.home"
"""The key in the pooled connection's ``info`` under which the place of its decision table is remembered."""


def as_sqlalchemy(connection: Connection, statement: str, error: BaseException) -> BaseException:
    """Return the error that SQLAlchemy would have raised for a driver's error; any other error unchanged."""
    errors_of_driver = getattr(connection.dialect.loaded_dbapi, "Error", None)
    if errors_of_driver is None or not isinstance(error, errors_of_driver):
        return error
    return DBAPIError.instance(
        statement,
        None,
        cast(Exception, error),
        errors_of_driver,
        hide_parameters=True,
        dialect=connection.dialect,
    )


@contextmanager
def translating(connection: Connection, statement: str) -> Iterator[None]:
    """Raise errors as SQLAlchemy would."""
    try:
        yield
    except Exception as error:
        translated = as_sqlalchemy(connection, statement, error)
        if translated is error:
            raise
        raise translated from error


def as_driver(error: BaseException) -> BaseException:
    """Return the driver's error inside of SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


class DriverDatabase(WrappedDatabase):
    """A Connection's transaction, ended at the driver. The caller has to inform SQLAlchemy."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.driver = adapter.adapt(connection.connection.driver_connection)
        self._identity: str | None = None

    @property
    def handle(self) -> object:
        """SQLAlchemy's Connection: it has the driver's for itself, and another Connection has it later."""
        return self.connection

    async def open(self) -> None:
        """Do nothing: it is open."""

    def condition(self) -> Condition:
        """Return the state as the driver's connection knows it."""
        return self.driver.condition()

    async def flush(self) -> None:
        """Do nothing: the code that ends the transaction has flushed."""

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement."""
        return await self.driver.execute(statement, parameters)

    async def take_write_lock(self) -> None:
        """Lock before the transaction reads; raises SQLAlchemy's errors."""
        with translating(self.connection, "txbroker: take the write lock"):
            await self.driver.take_write_lock()

    async def mark(self, token: str) -> str | None:
        """Run step 1."""
        with translating(self.connection, "txbroker: mark the transaction"):
            self._identity = await self.driver.mark(token)
        self.marked()
        return self._identity

    async def decide(self, token: str, key: str, broker: str) -> None:
        """Run step 3."""
        self.check_same_transaction()
        with translating(self.connection, "txbroker: insert the decision"):
            await self.driver.decide(token, key, broker)

    async def put(self, token: str, row: OutboxRow) -> None:
        """Insert a row of the outbox."""
        self.check_same_transaction()
        with translating(self.connection, "txbroker: insert the messages"):
            await self.driver.put(token, row)

    async def home(self) -> str:
        """Return the place; it is read once for each connection of the pool and each table, not for each Session."""
        known = self.connection.info.get(_HOME)
        if known is not None and self._identity is not None and known[0] == self._identity:
            return str(known[1])
        home = await self.driver.home()
        self.connection.info[_HOME] = (self._identity, home)
        return home

    def is_missing_table(self, error: Exception) -> bool:
        """Whether a statement failed because there is no such table."""
        return self.driver.is_missing_table(cast(Exception, as_driver(error)))

    async def commit(self) -> None:
        """Commit; raises SQLAlchemy's errors."""
        with translating(self.connection, "COMMIT"):
            await self.driver.commit()

    async def rollback(self) -> None:
        """Roll back."""
        await self.driver.rollback()

    async def close(self) -> None:
        """Have SQLAlchemy close the driver's connection: the pool makes another one."""
        self.connection.invalidate()

    def did_not_commit(self, error: BaseException) -> bool:
        """Return what the driver knows."""
        return self.driver.did_not_commit(as_driver(error))

    def connector(self) -> Connector | None:
        """Return a connector with all arguments of the engine: its pool gives one connection and forgets it."""
        if self.connection.dialect.is_async:
            return self.driver.connector()
        pool = self.connection.engine.pool

        def connect() -> Any:
            pooled = pool.recreate().connect()
            opened = pooled.driver_connection
            pooled.detach()
            return opened

        return connect

    def marked(self) -> None:
        """Note that the block has begun in this transaction."""

    def check_same_transaction(self) -> None:
        """Raise Misuse if SQLAlchemy has ended that transaction."""
