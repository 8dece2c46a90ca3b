"""Prepared transactions of one add: what comes with its prepare, and later its commit, each in one go.

As in :mod:`journal.transactions.whole_commit`: the journal gets the same records as otherwise, and they lead to the
same state. What
is saved is to have it among those that are active, and the generality of the long way.
"""

from __future__ import annotations

from typing import Final

from journal.engine.engine import Engine
from journal.errors import MemoryExhausted
from journal.formats.outcome import Outcome
from journal.formats.record import Placement, TransactionAdded, TransactionCommitted, TransactionPrepared
from journal.transaction import CLIENT, PREPARED, Xid
from journal.transactions.state import Transaction
from journal.transactions.whole_commit import Whole, failed_applying, is_usual, means_nothing_to_others


class WholePrepares:
    """Prepares and commits them, or leaves them to the long way, which also knows what to say about what is wrong."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._table = engine.transactions
        self._possible: Final = means_nothing_to_others(
            engine, TransactionAdded, TransactionPrepared, TransactionCommitted
        )

    def prepare(self, whole: Whole, xid: Xid) -> bool:
        """Stage and prepare it, of which both requests name that xid; False, with nothing changed, for the long way."""
        if not self._is_usual(whole, xid):
            return False
        engine, frames, totals = self._engine, whole.frames, whole.totals
        (session, serial), partition, at = whole.number, whole.store.number, engine.now()
        add_seen, seen = whole.seen
        add = TransactionAdded(session, serial, partition, totals.messages, at, add_seen, xid, whole.owner)
        lsn = engine.queue(add, frames)
        prepare = TransactionPrepared(session, serial, xid, totals, at, seen, whole.owner)
        last = engine.queue(prepare)
        try:
            self._take_in(lsn, whole, xid, at)
        except BaseException as error:
            failed_applying(engine, prepare, last, error)
            raise
        return True

    def _take_in(self, lsn: int, whole: Whole, xid: Xid, at: int) -> None:
        table, totals, partition = self._table, whole.totals, whole.store.number
        seen = max(whole.seen)
        if seen:
            table.outcomes.prune(whole.number.session, seen)
        transaction = Transaction(
            whole.number, at, whole.owner, xid, PREPARED, at, totals.messages, 1, totals.checksum,
            partitions={partition}, wall_offset=self._engine.catalog.wall_offset,
        )  # fmt: skip
        table.staging.hold(transaction.staged, partition, totals.messages, whole.frames, lsn, totals.checksum)
        table.enter(transaction)

    def commit(self, transaction: Transaction, seen: int) -> Outcome | None:
        """Decide for a prepared one, and apply it; None, with nothing changed, if it has to go the long way."""
        staged, engine, table = transaction.staged, self._engine, self._table
        entries, frames = staged.entries, staged.held.get(0)
        if (
            not self._possible
            or frames is None
            or len(entries) != 1
            or staged.file_entries
            or transaction.offsets
            or len(frames) > table.small_bytes
            or engine.failed
            or engine.busy
        ):
            return None
        entry = entries[0]
        store = engine.catalog.stores[entry.partition]
        at, base = engine.now(), store.end_offset
        try:
            store.append(frames, entry.count, at)
        except MemoryExhausted:
            return None
        session, serial = transaction.number
        placements = [Placement(entry.partition, base, entry.count)]
        record = TransactionCommitted(session, serial, placements, at, CLIENT, seen, "", "", None)
        lsn = engine.queue(record)
        try:
            table.decided(lsn, record)
            table.staging.release(staged)
            engine.touched((store,))
        except BaseException as error:
            failed_applying(engine, record, lsn, error)
            raise
        return table.outcomes.by_number[transaction.number]

    def _is_usual(self, whole: Whole, xid: Xid) -> bool:
        table = self._table
        return (
            self._possible
            and is_usual(self._engine, whole)
            and xid not in table.live_xids
            and xid not in table.outcomes.by_xid
        )
