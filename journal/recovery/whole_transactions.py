"""Transactions of one add, folded many at a time when the journal is replayed.

Most of what folding add and commit one after the other does is to take the transaction among the live ones and out of
them again, and its outcome among those that are remembered until the client has seen it, a moment later. So the add
waits for its commit, and what has been decided for the end of the group; then only what is still remembered becomes an
outcome, and the frames of each partition go to its log together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, compress, repeat
from operator import gt
from typing import Any, Final, NamedTuple, cast

from crc32c import crc32c

from journal.constants import MIB
from journal.errors import MemoryExhausted
from journal.formats.outcome import Outcome
from journal.formats.outcome_entry import pack_outcome
from journal.formats.record import AnyRecord, TransactionAdded, TransactionCommitted
from journal.interfaces import ICommitFold, IFold
from journal.log.catalog import Catalog
from journal.log.message_run import SHORT_RUN, MessageRun
from journal.log.message_store import MessageStore
from journal.log.stamping import stamped
from journal.recovery.transaction_run import Stretch, TransactionRun, Waiting
from journal.transaction import State, TransactionNumber
from journal.transactions.table import TransactionTable

WAITING_BYTES: Final = MIB
"""More frames of adds do not wait: until they are the table's they count for no budget."""
WAITING_OVERHEAD: Final = 512
"""What an add that waits takes beside its frames."""

LONG_RUN: Final = 32
"""So many transactions' messages for a partition do not wait for more."""

NO_STRETCH: Final = 16
"""Where few were usual, so many records are taken one by one before the next try, which costs 2 µs."""


class _Decided(NamedTuple):
    """A transaction whose outcome is not remembered yet."""

    add: TransactionAdded
    commit: TransactionCommitted
    size: int

    def outcome(self, wall: int) -> Outcome:
        """What the table would make of it; ``wall`` makes times of the wall clock of journal time."""
        add, commit, size = self
        return Outcome(
            number=TransactionNumber(add.session, add.serial),
            state=State.COMMITTED,
            cause=commit.cause,
            at=commit.at,
            xid=add.xid,
            by=commit.by,
            why=commit.why,
            placements=commit.placements,
            owner=add.owner,
            messages=add.count,
            bytes=size,
            wall=commit.at + wall,
            began=add.at + wall,
        )


class WholeTransactions:
    """Folds adds and commits into the table of transactions and the logs, as the table itself would.

    Between :meth:`add` and :meth:`settle` the table may miss the first adds of some transactions, and between
    :meth:`commit` and :meth:`fold` outcomes and the logs their messages. :meth:`fold` must come before sends, and
    :meth:`settle` before all other kinds of records, and all questions to the table.
    """

    def __init__(self, table: TransactionTable, catalog: Catalog, after_commit: Sequence[IFold]) -> None:
        self._table = table
        self._archive = table.archive
        self._catalog = catalog
        self._after_commit = after_commit
        """The folds that look at a commit after the table."""
        self._waiting: dict[TransactionNumber, Waiting] = {}
        self._bytes = 0
        self._decided: dict[TransactionNumber, _Decided] = {}
        self._seen: dict[int, int] = {}
        """What clients have seen, by session, where that is more than the table knows."""
        self._placed: dict[int, list[tuple[int, int, int, bytes]]] = {}
        """By partition, in order: base offset, count, time and frames of what is not in the logs yet."""

    def add(self, lsn: int, add: TransactionAdded, frames: bytes) -> None:
        """Keep the first add of a transaction for its commit; others are for the table."""
        number = TransactionNumber(add.session, add.serial)
        if number in self._waiting or number in self._decided:
            self.settle()
        if number in self._table.live:
            self.fold()
            self._table.apply(lsn, add, frames)
            return
        self._see(add.session, add.seen)
        self._waiting[number] = lsn, add, frames
        self._bytes += len(frames) + WAITING_OVERHEAD
        if self._bytes > WAITING_BYTES:
            self.settle()

    def commit(self, lsn: int, commit: TransactionCommitted) -> None:
        """Take a commit, together with its add if that waits; else it is for the table."""
        number = TransactionNumber(commit.session, commit.serial)
        found = self._waiting.get(number)
        if found is None or not self._decide(lsn, number, found[1], found[2], commit):
            self.settle()
            self._table.apply(lsn, commit, b"")
        for fold in self._after_commit:
            fold.apply(lsn, commit, b"")

    def settle(self) -> None:
        """Let the table have all adds that wait, and what has been decided before."""
        self.fold()
        waiting, self._waiting = self._waiting, {}
        self._bytes = 0
        for lsn, add, frames in waiting.values():
            self._table.apply(lsn, add, frames)

    def _see(self, session: int, seen: int) -> None:
        if seen > self._known(session):
            self._seen[session] = seen

    def _decide(
        self,
        lsn: int,
        number: TransactionNumber,
        add: TransactionAdded,
        frames: bytes,
        commit: TransactionCommitted,
    ) -> bool:
        """Keep both for :meth:`fold`; False, with nothing changed, if something about them is unusual."""
        placements = commit.placements
        if len(placements) != 1:
            return False
        placement = placements[0]
        if placement.partition != add.partition or placement.count != add.count:
            return False
        session, serial = number
        if serial <= max(commit.seen, self._seen.get(session, 0)):
            return False  # an outcome that is remembered though its client has seen it
        self._see(session, commit.seen)
        size = len(frames)
        self._decided[number] = decided = _Decided(add, commit, size)
        if self._archive.on:
            log, wall = self._catalog.stores[add.partition], self._catalog.wall_offset
            self._archive.note_all(1, [partial(_entry, lsn, decided, frames, log, wall)])
        row = placement.base_offset, add.count, commit.at, frames
        placed = self._placed.get(add.partition)
        if placed is None:
            self._placed[add.partition] = [row]
        else:
            placed.append(row)
        del self._waiting[number]
        self._bytes -= size + WAITING_OVERHEAD
        return True

    # -- all that was decided ----------------------------------------------------------------------

    def fold(self) -> None:
        """Let logs and outcomes have all that has been decided."""
        if self._placed:
            placed, self._placed = self._placed, {}
            for partition, rows in placed.items():
                self._place(partition, rows)
        self._remember_all()

    def fold_block(self) -> None:
        """Let outcomes, and logs of which there is much, have it: before it has left the processor's cache."""
        long = [partition for partition, rows in self._placed.items() if len(rows) >= LONG_RUN]
        for partition in long:
            self._place(partition, self._placed.pop(partition))
        self._remember_all()

    def _remember_all(self) -> None:
        if self._decided:
            decided, self._decided = self._decided, {}
            self._remember(decided)
        if self._seen:
            seen, self._seen = self._seen, {}
            for session, serial in seen.items():
                self._table.outcomes.prune(session, serial)

    def _place(self, partition: int, rows: list[tuple[int, int, int, bytes]]) -> None:
        if len(rows) >= SHORT_RUN:
            self._place_run(partition, *zip(*rows, strict=True))
            return
        store = self._catalog.stores[partition]
        for base, count, at, frames in rows:
            try:
                self._catalog.place(store, frames, base, count, at)
            except MemoryExhausted as error:
                raise _no_room(partition) from error
            store.publish(store.end_offset)

    def _place_run(
        self,
        partition: int,
        bases: Sequence[int],
        counts: Sequence[int],
        times: Sequence[int],
        frames: Sequence[bytes],
    ) -> None:
        nobody = (0,) * len(bases)
        columns = (bases, counts, times, nobody, nobody, nobody)
        try:
            self._catalog.apply_run(MessageRun(partition, columns, stamped(frames, bases, counts)))
        except MemoryExhausted as error:
            raise _no_room(partition) from error

    def _remember(self, decided: dict[TransactionNumber, _Decided]) -> None:
        """Make outcomes of those that are not forgotten again at once."""
        outcomes, wall, seen = self._table.outcomes, self._catalog.wall_offset, self._seen
        for number, each in decided.items():
            if number[1] > seen.get(number[0], 0) or each.add.xid is not None:
                outcomes.remember(each.outcome(wall))

    # -- many at once ------------------------------------------------------------------------------

    def stretch(
        self, lsn: int, records: Sequence[AnyRecord], data: Sequence[bytes], first: int
    ) -> tuple[bool, int]:
        """Take the adds and commits from that number on as far as they are usual; the records begin at ``lsn``.

        Returns whether they were taken, and the number after them; if not, the number before which there is no use
        in trying again.
        """
        stretch = Stretch(self._waiting, lsn)
        end = stretch.take(records, data, first)
        if len(stretch.pairs) < SHORT_RUN or not self.take(
            TransactionRun.of_pairs(stretch.lsns, stretch.pairs, stretch.seen, stretch.frames)
        ):
            return False, max(end, first + NO_STRETCH)
        for number in stretch.waited:
            _, _, frames = self._waiting.pop(number)
            self._bytes -= len(frames) + WAITING_OVERHEAD
        for place in stretch.adds.values():
            self.add(lsn + place, cast(TransactionAdded, records[place]), data[place])
        return True, end

    def take(self, run: TransactionRun) -> bool:
        """Take many, none of which waits; False, with nothing changed, if anything about them is unusual."""
        sessions, serials = run.sessions, run.serials
        if not self._are_new(sessions, serials):
            return False
        seen = self._seen_through(sessions, serials, run.seen)
        if seen is None:
            return False
        self._seen.update(seen)
        for place in _unseen(sessions, serials, seen):
            number = TransactionNumber(sessions[place], serials[place])
            self._decided[number] = _Decided(*run.pair(place), len(run.frames[place]))
        if self._archive.on:
            self._archive_all(run)
        self._place_all(run)
        return True

    def _are_new(self, sessions: Sequence[int], serials: Sequence[int]) -> bool:
        """Whether each number is there once, and means nothing to the table, to what was decided, or to a fold."""
        known: list[Any] = [self._table.live.keys(), self._decided.keys()]
        for fold in self._after_commit:
            if not ICommitFold.providedBy(fold):
                return False
            known.append(fold.concerned())
        if not any(known) and sessions.count(sessions[0]) == len(sessions):
            return len(set(serials)) == len(serials)  # 0.1 µs less
        numbers = set(zip(sessions, serials, strict=True))
        return len(numbers) == len(serials) and all(each.isdisjoint(numbers) for each in known)

    def _archive_all(self, run: TransactionRun) -> None:
        """An entry of the archive for each, made when it is wanted: then stores or the clock's offset may be others."""
        stores = self._catalog.stores
        logs = {partition: stores[partition] for partition in set(run.partitions)}
        later: Callable[[int], bytes] = partial(_entry_of, run, logs, self._catalog.wall_offset)
        count = len(run.frames)
        self._archive.note_all(count, map(partial, repeat(later), range(count)))

    def _seen_through(
        self, sessions: Sequence[int], serials: Sequence[int], seen: Sequence[int]
    ) -> dict[int, int] | None:
        """What clients have seen after all of these; None if one had been seen before it was decided."""
        if sessions.count(sessions[0]) == len(sessions):  # 0.1 µs less
            known = self._known(sessions[0])
            through: Sequence[int] = sorted(seen)
            if known > through[0] or through != list(seen):
                through = list(accumulate(seen, max, initial=known))[1:]
            return {sessions[0]: through[-1]} if all(map(gt, serials, through)) else None
        latest: dict[int, int] = {}
        for session, serial, now in zip(sessions, serials, seen, strict=True):
            told = latest.get(session)
            if told is None:
                told = self._known(session)
            latest[session] = told = max(told, now)
            if serial <= told:
                return None
        return latest

    def _known(self, session: int) -> int:
        known = self._seen.get(session)
        return self._table.outcomes.forgotten_through.get(session, 0) if known is None else known

    def _place_all(self, run: TransactionRun) -> None:
        placed, partitions = self._placed, run.partitions
        first = partitions[0]
        if first not in placed and partitions.count(first) == len(partitions):
            self._place_run(first, run.bases, run.counts, run.times, run.frames)
            return
        rows = zip(run.bases, run.counts, run.times, run.frames, strict=True)
        for partition, row in zip(partitions, rows, strict=True):
            known = placed.get(partition)
            if known is None:
                placed[partition] = [row]
            else:
                known.append(row)


def _entry_of(run: TransactionRun, logs: Mapping[int, MessageStore], wall: int, place: int) -> bytes:
    frames = run.frames[place]
    decided = _Decided(*run.pair(place), len(frames))
    return _entry(run.lsns[place], decided, frames, logs[run.partitions[place]], wall)


def _entry(lsn: int, decided: _Decided, frames: bytes, log: MessageStore, wall: int) -> bytes:
    """The archive's entry of a transaction of one add, as the archive itself would make it."""
    add, commit, size = decided
    checksum, base = crc32c(frames), commit.placements[0].base_offset
    part = log.topic, log.index, log.number, base, add.count, size, checksum
    return pack_outcome(lsn, decided.outcome(wall), 1, checksum, [part])


def _unseen(sessions: Sequence[int], serials: Sequence[int], seen: Mapping[int, int]) -> list[int]:
    """Which of them will be remembered, as far as is known now."""
    if len(seen) == 1:
        [through] = seen.values()
        return list(compress(range(len(serials)), map(gt, serials, repeat(through))))
    return [place for place, session in enumerate(sessions) if serials[place] > seen[session]]


def _no_room(partition: int) -> MemoryExhausted:
    return MemoryExhausted(
        f"transactions are committed, but their messages for partition {partition} do not fit into memory, though all "
        "else has been flushed. They stay committed: start again with a larger pool_bytes"
    )
