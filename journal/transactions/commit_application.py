"""The application of a commit: its messages are appended to their logs, in slices if they are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from journal.constants import GROUP_BYTES, KIB, MESSAGE_WEIGHT, SLICED_COMMIT_BYTES
from journal.errors import NEXT_STEP, CorruptJournal, MemoryExhausted
from journal.formats.filenames import JOURNAL_DIRECTORY
from journal.log.catalog import Catalog
from journal.log.message_store import MessageStore
from journal.log.shared_run import SharedRun
from journal.records.copies import further_bytes
from journal.records.record import Placement, Published, TransactionCommitted
from journal.transaction_states import TransactionNumber
from journal.transactions.staging import Entry, Staging
from journal.transactions.state import Transaction
from journal.wal.group import Deliver

ADD_WEIGHT: Final = 16 * KIB
"""Bytes that an add counts for beside its messages: 3 µs."""


def weight_of(size: int, messages: int, adds: int) -> int:
    """Return the cost of appending messages to logs, as bytes that are copied: 4 MiB in about 1 ms."""
    return size + MESSAGE_WEIGHT * messages + ADD_WEIGHT * adds


class SlicedApply:
    """The application of one commit: first to last add, resumed where it ran out of memory or of its slice.

    The logs show nothing of it before all is there and the commit is forced. Replaying messages that a log holds
    already changes nothing, so a crash in the middle is repaired by beginning again.
    """

    def __init__(
        self,
        lsn: int,
        record: TransactionCommitted | Published,
        transaction: Transaction,
        staging: Staging,
        catalog: Catalog,
        slice_bytes: int = GROUP_BYTES,
        small_bytes: int = SLICED_COMMIT_BYTES,
    ) -> None:
        self.lsn = lsn
        self.short_of_memory = False
        self._record = record
        self._transaction = transaction
        self._staging = staging
        self._catalog = catalog
        self._slice_bytes = slice_bytes
        self._small_bytes = small_bytes
        self._next = self._placed = 0
        """The entry that is applied next, and in how many of its logs it is."""
        self._bases = {p.partition: p.base_offset for p in record.placements}
        self.stores: list[MessageStore] = [catalog.stores[partition] for partition in self._bases]
        self.waiters: list[tuple[Deliver, Any]] = []
        """Answers to be given once all is there, forced and shown."""
        self.groups = transaction.groups
        """Consumer groups that it has moved: no client may learn of that before."""
        self._check_counts()

    def _check_counts(self) -> None:
        """Check the record's results: the added messages must be those that it states."""
        counts = self._transaction.staged.counts()
        if counts != {p.partition: p.count for p in self._record.placements}:
            raise misplaced(self._transaction.number, self.lsn, self._record.placements, counts)

    @property
    def is_small(self) -> bool:
        """Whether it can be applied in one turn."""
        return is_small(self._transaction, self._small_bytes)

    @property
    def number(self) -> TransactionNumber:
        """The number of the transaction."""
        return self._transaction.number

    @property
    def progress(self) -> tuple[int, int]:
        """How many adds are in their logs, and in how many of its logs the next one is."""
        return self._next, self._placed

    def step(self, forced_lsn: int) -> bool:
        """Apply up to a slice; return whether all is done. ``short_of_memory`` says that a flush must come first.

        Frames that are not in memory can be read back once the journal is forced up to them. The flusher may take the
        messages only once the commit itself is forced: no segment is touched before.
        """
        staged = self._transaction.staged
        left = self._small_bytes if self.is_small else self._slice_bytes
        self.short_of_memory = False
        while self._next < len(staged.entries):
            entry = staged.entries[self._next]
            if left <= 0 or (self._next not in staged.held and entry.lsn > forced_lsn):
                return False
            try:
                left = self._apply(entry, left)
            except MemoryExhausted:
                self.short_of_memory = True
                self._allow_flush(forced_lsn)
                return False
            if self._placed < len(entry.targets):
                return False
            self._next, self._placed = self._next + 1, 0
        self._staging.release(staged)
        return True

    def _apply(self, entry: Entry, left: int) -> int:
        """Append an entry to those of its logs that it is not in, within the rest of a slice; return what is left of
        that.
        """
        targets = entry.targets
        if self._placed == len(targets):
            return left
        frames = self._staging.load(self._transaction.number, self._transaction.staged, self._next)
        count, copied, logs = entry.count, entry.size, len(targets)
        shared = SharedRun.of(frames, count, logs)
        try:
            while self._placed < logs and left > 0:
                partition = targets[self._placed]
                store, base = self._catalog.stores[partition], self._bases[partition]
                self._catalog.place(store, frames, base, count, self._record.at, shared)
                self._bases[partition] = base + count
                left -= weight_of(copied, count, 1)
                copied = further_bytes(entry.size, count, logs)
                self._placed += 1
        finally:
            if shared is not None:
                shared.release()
        return left

    def _allow_flush(self, forced_lsn: int) -> None:
        if forced_lsn >= self.lsn:
            for store in self.stores:
                store.allow_flush(self._bases[store.number])


def is_small(transaction: Transaction, small_bytes: int) -> bool:
    """Return whether a commit can be applied in one turn: it copies at most ``small_bytes``, which are in memory."""
    staged = transaction.staged
    weight = weight_of(staged.placed_bytes, staged.placed_messages, len(staged.entries))
    return weight <= small_bytes and len(staged.held) == len(staged.entries)


def misplaced(
    number: TransactionNumber, lsn: int, placements: Sequence[Placement], counts: Mapping[int, int]
) -> CorruptJournal:
    """Return the error for a commit that places other messages than were sent."""
    return CorruptJournal(
        f"transaction {number} committed at LSN {lsn} says {list(placements)}, what was sent in it is {dict(counts)}: "
        f"a record is missing from the journal. No record was changed. {NEXT_STEP}",
        JOURNAL_DIRECTORY,
    )
