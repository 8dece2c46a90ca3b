"""The database connection of a resolver: opened when it is needed, with bounded waits, for one decision table."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from txbroker import errors
from txbroker.databases.adapters.adapter import adapt, run
from txbroker.databases.adapters.database import (
    ROLLED_BACK,
    Condition,
    Connector,
    Database,
    identity_of,
)
from txbroker.databases.tables import identity
from txbroker.databases.tables.identity import Identity

log = logging.getLogger("txbroker.resolver")


class ResolverConnection:
    """A connection to one decision table. For one thread. Errors of the driver are passed on.

    ``patience`` is how many seconds a method waits for others' locks, as far as the database can bound that.
    """

    def __init__(self, connect: Connector, name: str = "") -> None:
        """``connect`` opens a DB-API connection; ``name`` is the table's identity, "" if any will do."""
        self.name = name
        self.life = 0
        """Another number for each connection, also while none is open."""
        self._connect = connect
        self._database: Database | None = None
        self._identity: Identity | None = None

    def another(self) -> ResolverConnection:
        """Return another connection to the same table, for another thread; it is opened when first needed."""
        return ResolverConnection(self._connect, self.name)

    @property
    def database(self) -> Database:
        """The connection, opened when first needed."""
        if self._database is None:
            self._database = adapt(self._connect())
            self.life += 1
        return self._database

    def look(self) -> Identity:
        """Return the identity of the table; raises DecisionTableMissing, DecisionTableRefused."""
        if self._identity is None:
            try:
                self._begin_reading()
                found = run(identity.read(self.database))
            finally:
                self.roll_back()
            if self.name not in ("", found.name):
                raise errors.DecisionTableRefused(
                    f"the resolver's connection leads to the decision table {found.name}, not to {self.name}, which "
                    "is to be looked after: it is in another schema or database, or was adopted meanwhile; nothing was "
                    "decided. Say connect_database= (search_path is part of a connection's options), or begin with a "
                    "new resolver"
                )
            self._identity, self.name = found, found.name
        return self._identity

    def generation(self, patience: float) -> int:
        """Return the table's generation as it is now, once it is on disk; raises as :meth:`look`."""
        self.look()
        found = self.read_identity()
        if not run(self.database.is_forced()):
            self.force(patience)
        return found.generation

    def read_identity(self) -> Identity:
        """Return the identity as it is now; raises DecisionTableRefused if it is another table's."""
        try:
            self._begin_reading()
            found = identity.parse(identity_of(run(self.database.execute(self.database.read_identity))))
        finally:
            self.roll_back()
        if found.name != self.name:
            self._identity = None
            raise errors.DecisionTableRefused(
                f"the decision table is {found.name} now, and was {self.name}: it was adopted meanwhile; nothing was "
                "done. Begin anew"
            )
        return found

    def is_blocked(self, error: BaseException) -> bool:
        """Return whether a method has failed because others hold locks now."""
        database = self._database
        return isinstance(error, Exception) and database is not None and database.is_blocked(error)

    def roll_back(self) -> None:
        """End a transaction whose end decides nothing. A broken connection shows at the next statement."""
        if self._database is None:
            return  # there was none: to connect for this would be in vain
        try:
            run(self.database.rollback())
        except Exception as error:  # noqa: BLE001
            log.debug("rolling back: %s", error)

    def close(self) -> None:
        """Close the connection; the next use opens one."""
        database, self._database, self._identity = self._database, None, None
        self.life += 1  # what belongs to the closed one does not belong to the next, which is not opened yet
        close = getattr(database.handle, "close", None) if database is not None else None
        if close is not None:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - it is broken: that is why
                log.debug("closing the database connection: %s", error)

    def read(self, statement: str, parameters: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the rows of a query, in a transaction of its own."""
        try:
            self._begin_reading()
            return run(self.database.execute(statement, parameters)).rows
        finally:
            self.roll_back()

    @contextmanager
    def transaction(self, patience: float, is_forced: bool = True) -> Iterator[Database]:
        """Have what is done inside committed, or rolled back. Without ``is_forced`` a crash may take it back."""
        database = self.database
        self._begin(patience)
        try:
            bounds = database.patience(patience) if is_forced else database.patience_for_deleting(patience)
            for statement in bounds:
                run(database.execute(statement))
            yield database
            run(database.commit())
        except BaseException:
            self.roll_back()
            raise
        if is_forced:
            run(database.is_forced())  # SQLite's journal is removed, and that is not forced by itself

    def force(self, patience: float) -> None:
        """Force everything that was committed before, by a commit of a row that is deleted again at once."""
        key = f"?{secrets.token_hex(16)}"
        with self.transaction(patience) as database:
            run(database.execute(database.insert, (key, ROLLED_BACK, "")))
            run(database.execute(database.delete(1), (key,)))

    def _begin_reading(self) -> None:
        if self.database.reading_begins and self.database.condition() is Condition.IDLE:
            run(self.database.begin())

    def _begin(self, patience: float) -> None:
        database = self.database
        for statement in database.patience_before(patience):
            run(database.execute(statement))
        if database.condition() is Condition.IDLE:
            run(database.begin())
        elif database.condition() is Condition.AUTOCOMMIT:
            raise errors.Misuse(
                "connect_database gives a connection in autocommit mode: a resolver needs transactions; nothing "
                "was done"
            )
