"""Transactions that come whole: their only add and their one-phase commit together, applied in one go.

Most transactions are small, and their clients send add and commit in one write. To take such a one among those that are
undecided, stage its frames, and take it out again within the same turn is a third of what it costs. The journal gets
the same two records as otherwise, and they lead to the same state; a replay does likewise
(:mod:`journal.recovery.whole_transactions`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from journal.engine.engine import Engine
from journal.errors import MemoryExhausted
from journal.formats.outcome import Outcome
from journal.formats.record import AnyRecord, Placement, TransactionAdded, TransactionCommitted
from journal.interfaces import ICommitFold
from journal.log.message_store import MessageStore
from journal.transaction import CLIENT, COMMITTED, Totals, TransactionNumber


class Whole(NamedTuple):
    """What was sent: one run of checked frames, which ``totals`` agree with. ``seen`` are those of add and commit.

    Nothing of a transaction with that number has come before; who takes the requests of its session vouches for it.
    """

    number: TransactionNumber
    store: MessageStore
    frames: bytes
    totals: Totals
    seen: tuple[int, int]
    owner: str


def means_nothing_to_others(engine: Engine, *kinds: type) -> bool:
    """Whether no fold but the table of transactions wants to see these records of one with nothing but messages."""
    others = {fold for kind in kinds for fold in engine.routes.get(kind, ())} - {engine.transactions}
    return all(ICommitFold.providedBy(fold) for fold in others)


def is_usual(engine: Engine, whole: Whole) -> bool:
    """Whether nothing about it, and the state in which it comes, asks for the long way."""
    table, size = engine.transactions, len(whole.frames)
    return (
        not whole.store.internal
        and size <= table.small_bytes
        and not (engine.failed or engine.full or engine.busy)
        and max(whole.seen) < whole.number.serial
        and len(table.live) < table.limits.transactions
        and table.fits(None, size, whole.totals.messages)
    )


def failed_applying(engine: Engine, record: AnyRecord, lsn: int, error: BaseException) -> None:
    """Records are queued but the state does not agree with them: neither can be trusted any more."""
    engine.fail(f"applying {type(record).__name__} at LSN {lsn}: {error!r}")


class WholeCommits:
    """Commits them, or leaves them to the long way, which also knows what to say about what is wrong with one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._table = engine.transactions
        self._possible: Final = means_nothing_to_others(engine, TransactionAdded, TransactionCommitted)

    def commit(self, whole: Whole) -> Outcome | None:
        """Decide for, and apply it; None, with nothing changed, if it has to go the long way."""
        engine, number, store, totals = self._engine, whole.number, whole.store, whole.totals
        if not (self._possible and is_usual(engine, whole)):
            return None
        at, base, count = engine.now(), store.end_offset, totals.messages
        try:
            store.append(whole.frames, count, at)
        except MemoryExhausted:
            return None
        session, serial = number
        placements = [Placement(store.number, base, count)]
        add_seen, seen = whole.seen
        add = TransactionAdded(session, serial, store.number, count, at, add_seen, None, whole.owner)
        engine.queue(add, whole.frames)
        commit = TransactionCommitted(session, serial, placements, at, CLIENT, seen, "", "", totals)
        lsn = engine.queue(commit)
        try:
            return self._apply(lsn, whole, commit)
        except BaseException as error:
            failed_applying(engine, commit, lsn, error)
            raise

    def _apply(self, lsn: int, whole: Whole, commit: TransactionCommitted) -> Outcome:
        table, store, at = self._table, whole.store, commit.at
        seen = max(whole.seen)
        if seen:
            table.outcomes.prune(commit.session, seen)
        wall = at + self._engine.catalog.wall_offset
        messages, size, checksum = whole.totals.messages, len(whole.frames), whole.totals.checksum
        outcome = Outcome(
            whole.number, COMMITTED, CLIENT, at, placements=commit.placements, owner=whole.owner,
            messages=messages, bytes=size, wall=wall, began=wall,
        )  # fmt: skip
        table.outcomes.remember(outcome)
        if table.archive.on:
            base = commit.placements[0].base_offset
            part = store.topic, store.index, store.number, base, messages, size, checksum
            table.archive.note(lsn, outcome, 1, checksum, [part])
        self._engine.touched((store,))
        return outcome
