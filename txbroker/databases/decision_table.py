"""The decision table as a resolver uses it: through its own database connection, with bounded waits.

Each step here is one transaction, which has ended when its method returns.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence

from txbroker import errors
from txbroker.databases import identity
from txbroker.databases.adapters.adapter import adapt, run
from txbroker.databases.adapters.database import (
    COMMITTED,
    CONTRADICTED,
    ROLLED_BACK,
    Condition,
    Connector,
    Database,
    texts,
)
from txbroker.databases.identity import Identity

log = logging.getLogger("txbroker.resolver")

BATCH = 500
"""How many rows one statement deletes."""

WAITING = "waiting"
"""Not decided: the program's database transaction is still open."""


class DecisionTable:
    """One decision table. For one thread. Errors of the driver are passed on, unless a method says otherwise.

    ``patience`` is how many seconds a method waits for others' locks, as far as the database can bound that.
    """

    def __init__(self, connect: Connector, name: str) -> None:
        """``connect`` opens a DB-API connection; ``name`` is the table's identity, "" if any will do."""
        self.name = name
        self._connect = connect
        self._database: Database | None = None
        self._identity: Identity | None = None

    # -- the connection ----------------------------------------------------------------------------

    @property
    def database(self) -> Database:
        """The connection, opened when first needed."""
        if self._database is None:
            self._database = adapt(self._connect())
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

    def is_blocked(self, error: BaseException) -> bool:
        """Return whether a method has failed because others hold locks now."""
        database = self._database
        return isinstance(error, Exception) and database is not None and database.is_blocked(error)

    def roll_back(self) -> None:
        """End a transaction whose end decides nothing. A broken connection shows at the next statement."""
        try:
            run(self.database.rollback())
        except Exception as error:  # noqa: BLE001
            log.debug("rolling back: %s", error)

    def close(self) -> None:
        """Close the connection; the next use opens one."""
        database, self._database, self._identity = self._database, None, None
        close = getattr(database.handle, "close", None) if database is not None else None
        if close is not None:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - it is broken: that is why
                log.debug("closing the database connection: %s", error)

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

    # -- decisions ---------------------------------------------------------------------------------

    def decide(self, key: str, broker: str, patience: float) -> str:
        """Return the database's decision about a prepared xid: COMMITTED, ROLLED_BACK (the mark is there now),
        or WAITING.
        """
        try:
            return self._decide(key, broker, patience)
        except Exception as error:
            if self.is_blocked(error):
                return WAITING
            raise

    def _decide(self, key: str, broker: str, patience: float) -> str:
        self.look()
        found = self._read_forced(key, broker, patience)
        if found:
            return found
        database = self.database
        try:
            self._begin(patience)
            for statement in database.patience(patience):
                run(database.execute(statement))
            run(database.execute(database.insert, (key, ROLLED_BACK, broker)))
            run(database.commit())
        except Exception as error:
            self.roll_back()
            if database.is_duplicate(error):
                # The row is gone: the broker has been told, and the transaction is no longer prepared.
                return self._read_forced(key, broker, patience) or WAITING
            raise
        return ROLLED_BACK

    def _read_forced(self, key: str, broker: str, patience: float) -> str:
        """Do what :meth:`read` does, and return only once the decision is on disk."""
        found = self.read(key)
        if found == COMMITTED and not run(self.database.is_forced()):
            self._force(broker, patience)
        return found

    def _force(self, broker: str, patience: float) -> None:
        """Force everything that was committed before, by a commit of a row that is deleted again at once."""
        database, key = self.database, f"?{secrets.token_hex(16)}"
        self._begin(patience)
        try:
            for statement in database.patience(patience):
                run(database.execute(statement))
            run(database.execute(database.insert, (key, ROLLED_BACK, broker)))
            run(database.execute(database.delete(1), (key,)))
            run(database.commit())
        except BaseException:
            self.roll_back()
            raise

    def read(self, key: str) -> str:
        """Return the decision in the table; "" if there is none."""
        rows = self._read(self.database.read, key)
        if not rows:
            return ""
        return COMMITTED if rows[0][0] == CONTRADICTED else rows[0][0]

    def contradict(self, key: str, patience: float) -> None:
        """Mark a row as contradicted: the broker did the opposite."""
        database = self.database
        self._write(database.update, (CONTRADICTED, key), patience, database.patience(patience))

    # -- rows that may go --------------------------------------------------------------------------

    def delete(self, keys: Sequence[str], patience: float) -> int:
        """Delete rows by their keys; return how many there were."""
        removed, database = 0, self.database
        statements = database.patience_for_deleting(patience)
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            removed += max(0, self._write(database.delete(len(batch)), batch, patience, statements))
        return removed

    def leftovers(self, broker: str) -> list[tuple[str, ...]]:
        """Return rows of a broker that their programs should have deleted, a thousand at most: [(key, decision)]."""
        self.look()
        return self._read(self.database.leftovers(), broker)

    def contradicted(self, broker: str) -> list[str]:
        """Return keys of a broker's rows that wait for a person, a thousand at most."""
        self.look()
        return [key for (key,) in self._read(self.database.contradicted(), broker)]

    def _read(self, statement: str, parameter: str) -> list[tuple[str, ...]]:
        try:
            self._begin_reading()
            return texts(run(self.database.execute(statement, (parameter,))).rows)
        finally:
            self.roll_back()

    def _write(
        self, statement: str, parameters: Sequence[str], patience: float, statements: Sequence[str]
    ) -> int:
        database = self.database
        self._begin(patience)
        try:
            for each in statements:
                run(database.execute(each))
            count = run(database.execute(statement, parameters)).changed
            run(database.commit())
        except BaseException:
            self.roll_back()
            raise
        return count
