"""The choice of the database class for a user's connection."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

from txbroker import errors
from txbroker.databases.adapters.database import Database

T = TypeVar("T")

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
"""Maps the package of a connection's class to the module whose ``adapt(connection)`` returns the adapter."""


_adapters: dict[type, Callable[[Any], Database]] = {}
"""The modules' functions by the connection's class, once it is known."""


def adapt(database: Any) -> Database:
    """Return the adapter for a connection; raises Misuse for another object."""
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
    """Return the class of an argument as text for errors: the value itself may be long, and have secrets in it."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def no_connection(thing: object) -> errors.WrongType:
    """Return the error for an object of a driver that is not its connection."""
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
        "an asynchronous connection was given to the blocking client: use its `async with`; nothing was done"
    )
