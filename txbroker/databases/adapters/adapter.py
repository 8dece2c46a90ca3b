"""What a block needs of a user's database connection, and which adapter gives it that.

An adapter's methods are coroutines, so that one protocol (:mod:`txbroker.databases.protocol`) serves every face.
Those of a blocking driver never suspend: :func:`run` runs them.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeVar

from txbroker import errors
from txbroker.databases.adapters.dialect import Dialect, Result

T = TypeVar("T")

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


class Database(Protocol):
    """One connection, or session, of the user.

    ``handle`` is the thing of which there may be one block at a time (the driver's connection). Every error of the
    driver is let through as it is.
    """

    @property
    def dialect(self) -> Dialect:
        """The SQL it speaks."""

    @property
    def handle(self) -> object:
        """What may be in one block at a time; None before :meth:`open` has got hold of it."""

    async def open(self) -> None:
        """Before anything else: get hold of the connection, if this is a session; raises Misuse for what cannot be."""

    def condition(self) -> Condition:
        """Whether it is in a transaction, as far as the client side knows; asks the database nothing."""

    async def flush(self) -> None:
        """Before the decision: run the statements that a session still holds back."""

    async def begin(self) -> None:
        """Begin a transaction, if the first statement does not do that by itself. Called only when IDLE."""

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement inside the transaction; ``%s`` stands for a parameter."""

    async def commit(self) -> None:
        """Commit the transaction."""

    async def rollback(self) -> None:
        """Roll the transaction back; nothing if there is none."""

    async def close(self) -> None:
        """Close the connection: the transaction is rolled back, unless COMMIT has arrived."""

    def did_not_commit(self, error: BaseException) -> bool:
        """After :meth:`commit` raised ``error``: whether the transaction certainly was not and will not be committed.

        False if there is any doubt: then the resolver finds out.
        """

    def connector(self) -> Connector | None:
        """A way to open further connections to the same database; None if that cannot be known."""


_HOMES = {
    "psycopg": "txbroker.databases.adapters.postgresql",
    "psycopg2": "txbroker.databases.adapters.postgresql",
    "sqlite3": "txbroker.databases.adapters.sqlite",
    "pymysql": "txbroker.databases.adapters.mysql",
    "MySQLdb": "txbroker.databases.adapters.mysql",
    "mysql": "txbroker.databases.adapters.mysql",
    "sqlalchemy": "txbroker.databases.sqlalchemy",
    "django": "txbroker.databases.django",
}
"""The adapter of a connection is ``adapt(connection)`` of the module for its class's package."""


_adapters: dict[type, Callable[[Any], Database]] = {}
"""By the connection's class, once it is known."""


def adapt(database: Any) -> Database:
    """The adapter for a connection; raises Misuse for what is none."""
    known = _adapters.get(type(database))
    if known is not None:
        return known(database)
    for kind in type(database).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in _HOMES:
            return _from(_HOMES[package], database)
        if all(
            callable(getattr(database, name, None)) for name in ("cursor", "commit", "rollback")
        ) and hasattr(sys.modules.get(package), "paramstyle"):
            return _from("txbroker.databases.adapters.dbapi", database)
    raise errors.WrongType(
        f"{kind_of(database)} is no database connection: neither one of PEP 249 (cursor, commit, rollback, and its "
        "module's paramstyle) nor a Session or Connection of SQLAlchemy; nothing was done"
    )


def kind_of(thing: object) -> str:
    """The class of what somebody has given, for errors: its text may be long, and have secrets in it."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def no_connection(thing: object) -> errors.WrongType:
    """The error for something of a driver's that is not its connection."""
    return errors.WrongType(
        f"{kind_of(thing)} is no connection: give the connection itself (a cursor has it as .connection); nothing "
        "was done"
    )


def _from(module: str, database: Any) -> Database:
    make: Callable[[Any], Database] = import_module(module).adapt
    found = make(database)
    _adapters[type(database)] = make
    return found


def run(operation: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        operation.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    operation.close()
    raise errors.Misuse(
        "an asynchronous connection was given to the blocking face: use its `async with`; nothing was done"
    )
