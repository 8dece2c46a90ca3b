"""Ending what blocks have left prepared at the broker, as their database decided. ``docs/atomic.md`` has the proof.

Any number of resolvers may run at a time, in any processes; each step is decided by the key of the decision table.
"""

from __future__ import annotations

import enum
import logging
import secrets
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from journal.transaction import State, Xid
from txbroker import errors
from txbroker.client.blocking import Connection, connect
from txbroker.databases import identity, xids
from txbroker.databases.adapter import Condition, Connector, Database, adapt, run
from txbroker.databases.dialects import COMMITTED, CONTRADICTED, ROLLED_BACK, texts
from txbroker.databases.identity import Identity

log = logging.getLogger("txbroker.resolver")

BATCH = 500
"""Rows that one statement deletes."""

JUST_NOW = 100_000
"""µs for which living programs have transactions prepared, mostly."""

WAITING = "waiting"
"""Not decided: the program's database transaction is still open."""


class Told(enum.Enum):
    """What the broker made of a decision."""

    DONE = "it did so"
    ENDED = "it was ended before, by somebody else"
    CONTRADICTED = "a person or the orphan policy had ended it the other way"


class Resolution(NamedTuple):
    """What one pass did. ``waiting``: their database transactions are still open, or were when it looked.

    ``contradicted``: the database committed, but the transaction was rolled back at the broker by force. A person
    has to make them agree; the rows stay. ``removed`` counts rows that were left over. ``elsewhere`` counts
    transactions of blocks that this table does not decide.
    """

    committed: list[Xid]
    rolled_back: list[Xid]
    waiting: list[Xid]
    contradicted: list[str]
    removed: int
    elsewhere: int
    young: int = 0
    """Prepared for less than the grace period, but not just now, as those are that their programs are deciding."""

    @property
    def is_quiet(self) -> bool:
        """Whether there was nothing to do or to tell."""
        return not (self.committed or self.rolled_back or self.waiting or self.contradicted)


class Resolver:
    """Resolves for one decision table at one broker, through a database connection of its own. For one thread.

    ``connect_database`` opens a DB-API connection, ``broker`` is a connection or an address. ``grace``:
    transactions that have been prepared for less than so many seconds are left alone; that saves work, truth does
    not depend on it. ``lock_timeout``: how many seconds to wait for a program's open transaction before it is left
    for the next pass.
    """

    def __init__(
        self,
        connect_database: Connector,
        broker: Connection | str,
        *,
        grace: float = 0.0,
        lock_timeout: float = 1.0,
        table: str = "",
    ) -> None:
        self.grace = grace
        self.lock_timeout = lock_timeout
        self._connect = connect_database
        self._owns_broker = isinstance(broker, str)
        self.broker = connect(broker, client="txbroker-resolver") if isinstance(broker, str) else broker
        self._database: Database | None = None
        self._identity: Identity | None = None
        self._name = table

    # -- the database ------------------------------------------------------------------------------

    @property
    def database(self) -> Database:
        """The connection, opened when first needed."""
        if self._database is None:
            self._database = adapt(self._connect())
        return self._database

    def look(self) -> Identity:
        """Which table this is; raises DecisionTableMissing, DecisionTableRefused."""
        if self._identity is None:
            try:
                self._begin_reading()
                found = run(identity.read(self.database))
            finally:
                self._roll_back()
            if self._name not in ("", found.name):
                raise errors.DecisionTableRefused(
                    f"the resolver's connection leads to the decision table {found.name}, not to {self._name}, which "
                    "is to be looked after: it is in another schema or database, or was adopted meanwhile; nothing was "
                    "decided. Say connect_database= (search_path is part of a connection's options), or begin with a "
                    "new resolver"
                )
            self._identity, self._name = found, found.name
        return self._identity

    def _begin_reading(self) -> None:
        if self.database.dialect.reading_begins and self.database.condition() is Condition.IDLE:
            run(self.database.begin())

    def _roll_back(self) -> None:
        """End a transaction whose end decides nothing. A broken connection shows at the next statement."""
        try:
            run(self.database.rollback())
        except Exception as error:  # noqa: BLE001
            log.debug("rolling back: %s", error)

    def _begin(self) -> None:
        if self.database.condition() is Condition.IDLE:
            run(self.database.begin())
        elif self.database.condition() is Condition.AUTOCOMMIT:
            raise errors.Misuse(
                "connect_database gives a connection in autocommit mode: a resolver needs transactions; nothing "
                "was done"
            )

    def close_database(self) -> None:
        """Close the database connection; the next pass opens one."""
        database, self._database, self._identity = self._database, None, None
        close = getattr(database.handle, "close", None) if database is not None else None
        if close is not None:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - it is broken: that is why
                log.debug("closing the database connection: %s", error)

    # -- one pass ----------------------------------------------------------------------------------

    def resolve(self, sweep: bool = True) -> Resolution:
        """One pass over all that is in doubt, then over rows that are left over. Raises what stops it.

        Without ``sweep`` the database is asked nothing when nothing is in doubt.
        """
        done = Resolution([], [], [], [], 0, 0)
        mine, elsewhere, young = self.in_doubt()
        ended, failures = list[str](), list[errors.TxBrokerError]()
        for xid in mine:
            verdict = self.decide(xid)
            if verdict == WAITING:
                done.waiting.append(xid)
                continue
            try:
                told = self.tell(xid, verdict)
            except (errors.RequestRefused, errors.CorruptData) as error:
                failures.append(error)  # of this one: the others need not wait for it
                continue
            if told is Told.DONE:
                (done.committed if verdict == COMMITTED else done.rolled_back).append(xid)
            if told is not Told.CONTRADICTED:
                ended.append(xids.row_key(xid))
        self._remove_if_free(ended)
        removed, contradicted = self.sweep() if sweep else (0, done.contradicted)
        if failures:
            raise failures[0]
        return done._replace(removed=removed, contradicted=contradicted, elsewhere=elsewhere, young=young)

    def in_doubt(self) -> tuple[list[Xid], int, int]:
        """The prepared transactions to decide here; how many blocks' others there are, and how many too young ones."""
        name, broker, grace = self._name or self.look().name, self.broker.identity, self.grace * 1e6
        found = self.broker.transactions([State.PREPARED], format_id=xids.FORMAT_ID)
        mine = [info for info in found if xids.belongs(info.xid, name, broker)]
        old = [info.xid for info in mine if info.xid is not None and (info.prepared_age or 0) >= grace]
        busy = sum(1 for info in mine if (info.prepared_age or 0) < min(grace, JUST_NOW))
        return old, len(found) - len(mine), len(mine) - len(old) - busy

    def decide(self, xid: Xid) -> str:
        """What the database says of a prepared xid: COMMITTED, ROLLED_BACK (the mark is there now), or WAITING."""
        self.look()
        key, database = xids.row_key(xid), self.database
        found = self._read_forced(key)
        if found:
            return found
        dialect = database.dialect
        try:
            self._begin()
            for statement in dialect.patience(self.lock_timeout):
                run(database.execute(statement))
            run(database.execute(dialect.insert, (key, ROLLED_BACK, self.broker.identity)))
            run(database.commit())
        except Exception as error:
            self._roll_back()
            if dialect.is_duplicate(error):
                # Nothing there any more: it was deleted, so it was told, and is no longer prepared.
                return self._read_forced(key) or WAITING
            if dialect.is_blocked(error):
                return WAITING
            raise
        return ROLLED_BACK

    def _read_forced(self, key: str) -> str:
        """As :meth:`read`; what it says is on disk, and not just about to be."""
        found, dialect = self.read(key), self.database.dialect
        if found != COMMITTED or run(dialect.is_forced(self.database)):
            return found
        try:
            self._force()
        except Exception as error:
            if dialect.is_blocked(error):
                return WAITING
            raise
        return found

    def _force(self) -> None:
        """Commit something: that forces all that was committed before. What is written is deleted again at once."""
        database, key = self.database, f"?{secrets.token_hex(16)}"
        self._begin()
        try:
            for statement in database.dialect.patience(self.lock_timeout):
                run(database.execute(statement))
            run(database.execute(database.dialect.insert, (key, ROLLED_BACK, self.broker.identity)))
            run(database.execute(database.dialect.delete(1), (key,)))
            run(database.commit())
        except BaseException:
            self._roll_back()
            raise

    def read(self, key: str) -> str:
        """The decision that stands in the table; "" if there is none."""
        database = self.database
        try:
            self._begin_reading()
            rows = texts(run(database.execute(database.dialect.read, (key,))).rows)
        finally:
            self._roll_back()
        if not rows:
            return ""
        return COMMITTED if rows[0][0] == CONTRADICTED else rows[0][0]

    def tell(self, xid: Xid, verdict: str) -> Told:
        """Have the broker do it."""
        try:
            self.broker.end_prepared(xid, verdict == COMMITTED)
        except errors.HeuristicOutcome as error:
            self._contradicted(xids.row_key(xid), verdict, str(error))
            return Told.CONTRADICTED
        except errors.TransactionRolledBack as error:
            self._contradicted(xids.row_key(xid), verdict, str(error))
            return Told.CONTRADICTED
        except (
            errors.TransactionCommitted,
            errors.UnknownTransaction,
            errors.OutcomeForgotten,
        ) as error:
            log.debug("transaction %s has ended meanwhile: %s", xid, error)
            return Told.ENDED
        log.info(
            "transaction %s, left prepared by its program, is %s now, as its database decided", xid, verdict
        )
        return Told.DONE

    def _contradicted(self, key: str, verdict: str, reason: str) -> None:
        there = (
            "Rows are there whose messages are not"
            if verdict == COMMITTED
            else "Messages are there without rows"
        )
        log.error(
            "transaction %s: the database has it %s, and at the broker the opposite was done (%s). %s: make them "
            "agree by hand, then delete the row of txbroker_decision with this xid",
            key,
            verdict,
            reason,
            there,
        )
        dialect = self.database.dialect
        self._write(dialect.update, (CONTRADICTED, key), dialect.patience(self.lock_timeout))

    def _write(self, statement: str, parameters: Sequence[str], patience: Sequence[str]) -> int:
        database = self.database
        self._begin()
        try:
            for each in patience:
                run(database.execute(each))
            count = run(database.execute(statement, parameters)).changed
            run(database.commit())
        except BaseException:
            self._roll_back()
            raise
        return count

    # -- rows that may go --------------------------------------------------------------------------

    def remove(self, keys: Iterable[str]) -> int:
        """Delete the rows of transactions whose end the broker has acknowledged."""
        found, removed, dialect = list(keys), 0, self.database.dialect
        patience = dialect.patience_for_deleting(self.lock_timeout)
        for start in range(0, len(found), BATCH):
            batch = found[start : start + BATCH]
            removed += max(0, self._write(dialect.delete(len(batch)), batch, patience))
        return removed

    def _remove_if_free(self, keys: list[str]) -> int:
        """Delete them, or leave them to a later pass if others hold locks now."""
        try:
            return self.remove(keys)
        except Exception as error:
            if not self.database.dialect.is_blocked(error):
                raise
            log.debug("%d rows cannot be deleted now: %s", len(keys), error)
            return 0

    def leftovers(self) -> list[tuple[str, ...]]:
        """Rows of this broker that somebody should have deleted: [(key, decision)]."""
        self.look()
        database = self.database
        try:
            self._begin_reading()
            return texts(run(database.execute(database.dialect.leftovers(), (self.broker.identity,))).rows)
        finally:
            self._roll_back()

    def sweep(self) -> tuple[int, list[str]]:
        """Delete rows that are left over; return how many, and the contradicted ones."""
        return self.sweep_rows(self.leftovers())

    def sweep_rows(self, rows: list[tuple[str, ...]]) -> tuple[int, list[str]]:
        """The broker is asked *after* the rows were read: a row that was there then had been prepared before.

        So one that is not prepared now is decided (docs/atomic.md, E). The other order would be wrong.
        """
        if not rows:
            return 0, []
        prefix = xids.prefix(self.look().name)
        prepared = self._keys([State.PREPARED], prefix)
        contradicted = [key for key, decision in rows if decision == CONTRADICTED]
        gone = []
        for key, decision in rows:
            if key in prepared or decision == CONTRADICTED:
                continue
            if contradiction := self._contradiction(key, decision):
                self._contradicted(key, decision, contradiction)
                contradicted.append(key)
            else:
                gone.append(key)
        return self._remove_if_free(gone), contradicted

    def _contradiction(self, key: str, decision: str) -> str:
        """How a transaction that is not prepared any more ended, if that is not as decided.

        A mark beside "committed" is one only if that was forced: a resolver that was late leaves such a mark, too.
        """
        try:
            found = self.broker.outcome(Xid(xids.FORMAT_ID, key.encode(), self.broker.identity.encode()))
        except (errors.UnknownTransaction, errors.OutcomeForgotten):
            return ""
        other = State.ROLLED_BACK if decision == COMMITTED else State.COMMITTED
        if found.state is not other or not (decision == COMMITTED or found.heuristic):
            return ""
        return f"by {found.by or 'a client'}: {found.why}" if found.why else f"by {found.by or 'a client'}"

    def _keys(self, states: list[State], prefix: bytes) -> set[str]:
        found = self.broker.transactions(states, format_id=xids.FORMAT_ID, global_prefix=prefix)
        here = self.broker.identity.encode()
        return {xids.row_key(info.xid) for info in found if info.xid is not None and info.xid.branch == here}

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the database connection, and the broker's if it was made here."""
        self.close_database()
        if self._owns_broker:
            self.broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
