"""The decision table as a resolver uses it: each step is one transaction, which has ended when its method returns."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.databases.adapters.adapter import run
from txbroker.databases.adapters.database import COMMITTED, CONTRADICTED, ROLLED_BACK, texts
from txbroker.databases.tables.resolver_connection import ResolverConnection

BATCH = 500
"""How many rows one statement deletes."""

WAITING = "waiting"
"""Not decided: the program's database transaction is still open."""


class DecisionTable:
    """One decision table, over a resolver's connection. Errors of the driver are passed on, unless a method says
    otherwise.

    ``patience`` is how many seconds a method waits for others' locks, as far as the database can bound that.
    """

    def __init__(self, connection: ResolverConnection) -> None:
        self.connection = connection

    # -- decisions ---------------------------------------------------------------------------------

    def decide(self, key: str, broker: str, patience: float) -> str:
        """Return the database's decision about a prepared xid: COMMITTED, ROLLED_BACK (the mark is there now),
        or WAITING.
        """
        try:
            return self._decide(key, broker, patience)
        except Exception as error:
            if self.connection.is_blocked(error):
                return WAITING
            raise

    def _decide(self, key: str, broker: str, patience: float) -> str:
        connection = self.connection
        connection.look()
        found = self._read_forced(key, patience)
        if found:
            return found
        try:
            with connection.transaction(patience) as database:
                run(database.execute(database.insert, (key, ROLLED_BACK, broker)))
        except Exception as error:
            if connection.database.is_duplicate(error):
                # The row is gone: the broker has been told, and the transaction is no longer prepared.
                return self._read_forced(key, patience) or WAITING
            raise
        return ROLLED_BACK

    def known(self, key: str, patience: float) -> str:
        """Return the decision that the table has, forced; "" if there is none. Leaves no mark."""
        self.connection.look()
        return self._read_forced(key, patience)

    def _read_forced(self, key: str, patience: float) -> str:
        """Do what :meth:`read` does, and return only once the decision is on disk."""
        found = self.read(key)
        if found == COMMITTED and not run(self.connection.database.is_forced()):
            self.connection.force(patience)
        return found

    def read(self, key: str) -> str:
        """Return the decision in the table; "" if there is none."""
        rows = self._read(self.connection.database.read, key)
        if not rows:
            return ""
        return COMMITTED if rows[0][0] == CONTRADICTED else rows[0][0]

    def contradict(self, key: str, patience: float) -> None:
        """Mark a row as contradicted: the broker did the opposite."""
        with self.connection.transaction(patience) as database:
            run(database.execute(database.update, (CONTRADICTED, key)))

    # -- rows that may go --------------------------------------------------------------------------

    def delete(self, keys: Sequence[str], patience: float) -> int:
        """Delete rows by their keys; return how many there were."""
        removed = 0
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            with self.connection.transaction(patience, is_forced=False) as database:
                removed += max(0, run(database.execute(database.delete(len(batch)), batch)).changed)
        return removed

    def leftovers(self, broker: str) -> list[tuple[str, ...]]:
        """Return rows of a broker that their programs should have deleted, a thousand at most: [(key, decision)]."""
        self.connection.look()
        return self._read(self.connection.database.leftovers(), broker)

    def contradicted(self, broker: str) -> list[str]:
        """Return keys of a broker's rows that wait for a person, a thousand at most."""
        self.connection.look()
        return [key for (key,) in self._read(self.connection.database.contradicted(), broker)]

    def _read(self, statement: str, parameter: str) -> list[tuple[str, ...]]:
        return texts(self.connection.read(statement, (parameter,)))
