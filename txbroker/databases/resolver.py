"""The resolver: it ends transactions that blocks have left prepared, as their database decided.

``docs/atomic.md`` has the proof. Any number of resolvers may run at the same time, in any processes; the key of the
decision table decides each step.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from types import TracebackType
from typing import NamedTuple, Self

from journal.transaction_states import State
from journal.words import count_text
from journal.xid import Xid
from txbroker import errors
from txbroker.client.blocking import Connection, connect
from txbroker.databases.adapters.database import COMMITTED, CONTRADICTED, Connector
from txbroker.databases.outbox.keeper import Keeper
from txbroker.databases.outbox.lookout import Lookout, Swept
from txbroker.databases.tables import xids
from txbroker.databases.tables.decision_table import WAITING, DecisionTable
from txbroker.databases.tables.identity import Identity
from txbroker.databases.tables.resolver_connection import ResolverConnection
from txbroker.wire.messages import TransactionInfo

log = logging.getLogger("txbroker.resolver")

JUST_NOW = 100_000
"""µs for which living programs usually have transactions prepared."""


LISTED_WITHIN = 1.0
"""Seconds for which a pass that is one of many waits for the list of what programs have left in the database."""


class Told(enum.Enum):
    """The broker's reaction to a decision."""

    DONE = "it did so"
    ENDED = "it was ended before, by somebody else"
    CONTRADICTED = "a person or the orphan policy had ended it the other way"


class InDoubt(NamedTuple):
    """The transactions that a table decides.

    ``old`` were prepared longer ago than the grace period. ``elsewhere`` counts those of other tables, ``young`` those
    that are too young, but not as young as those that their programs are deciding. ``restored`` were prepared when the
    backup was made that the broker's data are restored from.
    """

    old: list[Xid]
    elsewhere: int
    young: int
    restored: list[Xid]


class Resolution(NamedTuple):
    """The results of one pass of a resolver.

    ``waiting``: their database transactions were still open when the resolver looked. ``contradicted``: the database
    committed, but the transaction was rolled back at the broker by force. A person has to make them agree; the rows
    stay. ``removed`` counts rows that were left over. ``elsewhere`` counts transactions of blocks that this table does
    not decide. ``outbox`` has what was done for blocks that left their messages in the database.
    """

    committed: list[Xid]
    rolled_back: list[Xid]
    waiting: list[Xid]
    contradicted: list[str]
    removed: int
    elsewhere: int
    young: int = 0
    """Prepared for less than the grace period, but not just now, as those are that their programs are deciding."""

    outbox: Swept = Swept()
    restored: list[Xid] = []  # noqa: RUF012 - never changed
    """Restored ones (docs/backup.md) of which the table has no row, and which wait for a person: the row may have been
    deleted after the backup, because all was done, or never have been there.
    """

    @property
    def is_quiet(self) -> bool:
        """Whether there was nothing to do or to report."""
        return not (
            self.committed
            or self.rolled_back
            or self.waiting
            or self.contradicted
            or self.restored
            or self.outbox.is_busy
        )

    @property
    def needs_a_person(self) -> bool:
        """Whether something is left that this pass could not end, or blocks were refused for ever."""
        return bool(self.waiting or self.contradicted or self.restored or self.outbox.refused)

    @property
    def sentence(self) -> str:
        """The pass on one line, for people."""
        outbox = self.outbox
        parts = [
            (len(self.committed), f"{len(self.committed):,} committed"),
            (len(self.rolled_back), f"{len(self.rolled_back):,} rolled back"),
            (len(self.waiting), f"{len(self.waiting):,} waiting for an open database transaction"),
            (len(self.restored), f"{len(self.restored):,} restored from a backup and waiting for a person"),
            (len(self.contradicted), f"{len(self.contradicted):,} contradicted by force"),
            (self.removed, f"{count_text(self.removed, 'row')} removed"),
            (self.elsewhere, f"{self.elsewhere:,} of other databases left alone"),
            (outbox.delivered, f"{count_text(outbox.delivered, 'block')} delivered from the outbox"),
            (
                outbox.refused,
                f"{count_text(outbox.refused, 'block')} refused for ever (see 'txbroker outbox list')",
            ),
            (outbox.released, f"{count_text(outbox.released, 'stream')} released"),
        ]
        return ", ".join(text for count, text in parts if count) or "nothing was in doubt"


def goes_on(error: errors.TxBrokerError) -> bool:
    """Return whether a resolver that watches tries again after an error: it may pass, or a person ends it elsewhere."""
    passing = (
        errors.StorageUnavailable,
        errors.OutcomeUnknown,
        errors.LimitExceeded,
        errors.OutboxSetBack,
    )
    return isinstance(error, passing)


def _looked(lookout: Lookout) -> Swept:
    swept = lookout.look(LISTED_WITHIN)
    error, lookout.failed = lookout.failed, None
    if error is not None:
        raise error
    return swept


class Resolver:
    """A resolver for one decision table at one broker, with its own database connection. For one thread.

    ``connect_database`` opens a DB-API connection; ``broker`` is a connection or an address. Transactions that have
    been prepared for less than ``grace`` seconds are left alone, which saves work and affects no outcome.
    ``lock_timeout`` is how many seconds one pass waits, for all programs together, for transactions that are still
    open, if the database can bound that; those that are still open then are left for the next pass.
    """

    def __init__(
        self,
        connect_database: Connector,
        broker: Connection | str,
        *,
        grace: float = 0.0,
        lock_timeout: float = 1.0,
        table: str = "",
        outbox: bool = True,
    ) -> None:
        """``outbox`` says whether a pass goes on with messages that programs have left in the database, too."""
        self.grace = grace
        self.lock_timeout = lock_timeout
        self.connection = ResolverConnection(connect_database, table)
        self.table = DecisionTable(self.connection)
        self._owns_broker = isinstance(broker, str)
        self.broker = connect(broker, client="txbroker-resolver") if isinstance(broker, str) else broker
        self._outbox = outbox
        self._keeper: Keeper | None = None
        self._lookout: Lookout | None = None
        self._waited = 0.0
        """Seconds that this pass has waited for others."""
        self._may_see_others = True
        self._late: dict[Xid, None] = {}
        """Those that were not decided when they were last asked, longest ago first."""

    def look(self) -> Identity:
        """Return the identity of the decision table; raises DecisionTableMissing, DecisionTableRefused."""
        return self.connection.look()

    def stop_looking(self, patience: float) -> None:
        """Wait for so many seconds until what lists others' messages has ended, if it is under way."""
        if self._lookout is not None:
            self._lookout.end(patience)

    def close_database(self) -> None:
        """Close the database connection; the next pass opens one."""
        self.connection.close()

    # -- one pass ----------------------------------------------------------------------------------

    @property
    def keeper(self) -> Keeper | None:
        """The keeper of the outbox; None for a database that has none. Raises what its driver does."""
        if self._keeper is None and self.connection.database.has_outbox:
            self._keeper = Keeper(self.connection, lambda: self.broker)
        return self._keeper

    @property
    def lookout(self) -> Lookout | None:
        """The lookout for what others have left in the outbox; None for a database that has none. Raises what its
        driver does.
        """
        if self._lookout is None and (keeper := self.keeper) is not None:
            self._lookout = Lookout(keeper, self.connection)
        return self._lookout

    def resolve(self, sweep: bool = True, patient: bool = False) -> Resolution:
        """Make one pass over all transactions in doubt, then over rows that are left over. Raises the error that stops
        it.

        Without ``sweep`` the database is not asked if nothing is in doubt. With ``patient`` messages that programs have
        left in the database are delivered only if nothing has changed there between two looks, five seconds apart or
        more: else by nobody's leave, which costs a living program another claim.
        """
        self._waited = 0.0
        done = Resolution([], [], [], [], 0, 0)
        found = self.in_doubt()
        ended, failures = list[str](), list[errors.TxBrokerError]()
        waiting = dict.fromkeys(found.old)
        restored = dict.fromkeys(found.restored)
        for xid, verdict in chain(self._verdicts(found.old), self._known_commits(found.restored)):
            waiting.pop(xid, None)
            restored.pop(xid, None)
            try:
                told = self.tell(xid, verdict)
            except (errors.RequestRefused, errors.CorruptData) as error:
                failures.append(error)  # of this transaction: the others need not wait for it
                continue
            if told is Told.DONE:
                (done.committed if verdict == COMMITTED else done.rolled_back).append(xid)
            if told is not Told.CONTRADICTED:
                ended.append(xids.row_key(xid))
        self._remove_if_free(ended)
        removed, contradicted = self.sweep() if sweep else (0, done.contradicted)
        swept = Swept()
        if self._outbox and sweep and (lookout := self.lookout) is not None:
            swept = _looked(lookout) if patient else lookout.sweep()
        if failures:
            raise failures[0]
        return done._replace(
            outbox=swept,
            waiting=list(waiting),
            restored=list(restored),
            removed=removed,
            contradicted=contradicted,
            elsewhere=found.elsewhere,
            young=found.young,
        )

    def _known_commits(self, restored: list[Xid]) -> Iterator[tuple[Xid, str]]:
        """Yield restored transactions that the table has as committed.

        No mark is left for the others: that there is no row may mean that all was done, and a mark would say later that
        a person who commits them contradicts the database.
        """
        for xid in restored:
            if self.table.known(xids.row_key(xid), self._left) == COMMITTED:
                yield xid, COMMITTED

    def _verdicts(self, mine: list[Xid]) -> Iterator[tuple[Xid, str]]:
        """Yield the database's decision about each decided transaction, as soon as it is known.

        All are asked without waiting first, those last that the last pass had to wait for. Then the waiting time goes
        to the undecided ones, one after the other until it is spent, so that over several passes each has its turn.
        """
        prepared = set(mine)
        self._late = {xid: None for xid in self._late if xid in prepared}
        fresh = [xid for xid in mine if xid not in self._late]
        yield from self._asked([*fresh, *self._late], patient=False)
        yield from self._asked(list(self._late), patient=True)

    def _asked(self, turn: list[Xid], patient: bool) -> Iterator[tuple[Xid, str]]:
        for xid in turn:
            if self._waited and self._left <= 0:
                return
            begun = time.monotonic()
            verdict = self.decide(xid, self._left if patient else 0.0)
            self._late.pop(xid, None)
            if verdict == WAITING:
                self._waited += time.monotonic() - begun
                self._late[xid] = None
            else:
                yield xid, verdict

    @property
    def _left(self) -> float:
        """Return the seconds for which this pass may still wait."""
        return max(0.0, self.lock_timeout - self._waited)

    def in_doubt(self) -> InDoubt:
        """Return the prepared transactions to decide here, and how many belong to other tables or are too young."""
        name, broker, grace = self.connection.name or self.look().name, self.broker.identity, self.grace * 1e6
        found = self._prepared(xids.prefix(name))
        mine = [info for info in found if xids.belongs(info.xid, name, broker)]
        restored = [info.xid for info in mine if info.xid is not None and info.restored]
        mine = [info for info in mine if not info.restored]
        old = [info.xid for info in mine if info.xid is not None and (info.prepared_age or 0) >= grace]
        busy = sum(1 for info in mine if (info.prepared_age or 0) < min(grace, JUST_NOW))
        elsewhere = len(found) - len(mine) - len(restored)
        return InDoubt(old, elsewhere, len(mine) - len(old) - busy, restored)

    def _prepared(self, prefix: bytes) -> list[TransactionInfo]:
        """Return all prepared transactions of blocks; of this table alone where it may not ask for others.

        A list is whole for what was asked, or refused: then nothing is concluded.
        """
        broker = self.broker
        if self._may_see_others:
            try:
                return broker.transactions([State.PREPARED], format_id=xids.FORMAT_ID)
            except errors.AccessDenied:
                self._may_see_others = False
        return broker.transactions([State.PREPARED], format_id=xids.FORMAT_ID, global_prefix=prefix)

    def decide(self, xid: Xid, patience: float | None = None) -> str:
        """Return the database's decision about a prepared xid: COMMITTED, ROLLED_BACK (the mark is there now), or
        WAITING.

        ``patience`` is in seconds; None is ``lock_timeout``.
        """
        seconds = self.lock_timeout if patience is None else patience
        return self.table.decide(xids.row_key(xid), self.broker.identity, seconds)

    def tell(self, xid: Xid, verdict: str) -> Told:
        """Tell the broker to commit or to roll back."""
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
        try:
            self.table.contradict(key, self._left)
        except Exception as error:
            if not self.connection.is_blocked(error):
                raise
            log.debug("the row of %s cannot be marked now, a sweep will: %s", key, error)

    # -- rows that may go --------------------------------------------------------------------------

    def remove(self, keys: Iterable[str], patience: float | None = None) -> int:
        """Delete the rows of transactions whose end the broker has acknowledged; return how many there were.

        ``patience`` is in seconds; None is ``lock_timeout``.
        """
        return self.table.delete(list(keys), self.lock_timeout if patience is None else patience)

    def _remove_if_free(self, keys: list[str]) -> int:
        """Delete them, or leave them to a later pass if others hold locks now."""
        begun = time.monotonic()
        try:
            return self.remove(keys, self._left)
        except Exception as error:
            if not self.connection.is_blocked(error):
                raise
            self._waited += time.monotonic() - begun
            log.debug("%d rows cannot be deleted now: %s", len(keys), error)
            return 0

    def sweep(self) -> tuple[int, list[str]]:
        """Delete rows that are left over, a thousand at most; return how many, and the contradicted ones."""
        removed, found = self.sweep_rows(self.table.leftovers(self.broker.identity))
        return removed, list(dict.fromkeys([*found, *self.table.contradicted(self.broker.identity)]))

    def sweep_rows(self, rows: list[tuple[str, ...]]) -> tuple[int, list[str]]:
        """Sweep these rows: ask the broker *after* the rows were read, because a row that was there had been prepared
        before.

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
        """Return how a transaction that is not prepared any more ended, if that differs from the decision.

        A mark beside "committed" differs only if the commit was forced: a late resolver leaves such a mark, too.
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
