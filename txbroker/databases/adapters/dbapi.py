"""The adapter for any connection of PEP 249, by its cursor, and its module's parameter style and exceptions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from txbroker import errors
from txbroker.databases.adapters.adapter import kind_of
from txbroker.databases.adapters.database import Condition, Database, Result, named


class DbApiDatabase(Database):
    """A blocking connection. Drivers with more information than PEP 249 requires have subclasses."""

    def __init__(self, connection: Any, paramstyle: str) -> None:
        self.connection = connection
        self.handle: object = connection
        self._translate = TRANSLATIONS.get(paramstyle)
        if self._translate is None:
            raise errors.Misuse(f"parameter style {paramstyle!r} is not one of PEP 249's; nothing was done")

    def condition(self) -> Condition:
        """Return IDLE or OPEN; PEP 249 begins a transaction by itself, and many drivers know whether one is open."""
        return (
            Condition.AUTOCOMMIT if getattr(self.connection, "autocommit", False) is True else Condition.IDLE
        )

    def cursor(self) -> Any:
        """A cursor whose rows are sequences."""
        return self.connection.cursor()

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a statement."""
        cursor = self.cursor()
        try:
            assert self._translate is not None
            if parameters:
                cursor.execute(*self._translate(statement, tuple(parameters)))
            else:
                cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
            count = cursor.rowcount
        finally:
            cursor.close()
        return Result([list(row.values()) if isinstance(row, Mapping) else row for row in rows], count)

    async def commit(self) -> None:
        """Commit."""
        self.connection.commit()

    async def rollback(self) -> None:
        """Roll back."""
        self.connection.rollback()

    async def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def did_not_commit(self, error: BaseException) -> bool:
        """Return True for a violated constraint, which is an answer; any other error may have come after COMMIT."""
        return named(error, "IntegrityError")


Translate = Callable[[str, tuple[Any, ...]], tuple[str, Any]]


@lru_cache(maxsize=1000)
def _numbered(statement: str, before: str) -> str:
    parts = statement.split("%s")
    numbered = (f"{before}{number}{part}" for number, part in enumerate(parts[1:], 1))
    return parts[0] + "".join(numbered)


TRANSLATIONS: dict[str, Translate] = {
    "format": lambda statement, values: (statement, values),
    "pyformat": lambda statement, values: (statement, values),
    "qmark": lambda statement, values: (statement.replace("%s", "?"), values),
    "numeric": lambda statement, values: (_numbered(statement, ":"), values),
    "named": lambda statement, values: (
        _numbered(statement, ":p"),
        {f"p{number}": value for number, value in enumerate(values, 1)},
    ),
}


def adapt(connection: Any) -> DbApiDatabase:
    """Return the adapter for a connection of a driver that is not known by name."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        if hasattr(module, "paramstyle"):
            return DbApiDatabase(connection, module.paramstyle)  # type: ignore[union-attr]
    raise errors.Misuse(
        f"no driver's module with a paramstyle is known for {kind_of(connection)}; nothing was done"
    )
