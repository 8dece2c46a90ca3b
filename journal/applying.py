"""Putting a committed transaction's messages into their logs, in slices if they are many."""

from __future__ import annotations

from journal.catalog import Catalog
from journal.constants import GROUP_BYTES, SLICED_COMMIT_BYTES
from journal.errors import NEXT_STEP, CorruptJournal, MemoryExhausted
from journal.filenames import JOURNAL_DIRECTORY
from journal.message_store import MessageStore
from journal.record import TransactionCommitted
from journal.staging import Staging
from journal.transaction import TransactionNumber
from journal.transaction_state import Transaction


class SlicedApply:
    """The application of one commit: first to last add, resumed where it ran out of memory or of its slice.

    The logs show nothing of it before all is there and the commit is forced. Replaying what a log holds already
    changes nothing, so a crash in the middle is repaired by beginning again.
    """

    def __init__(
        self,
        lsn: int,
        record: TransactionCommitted,
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
        self._next = 0
        self._bases = {p.partition: p.base_offset for p in record.placements}
        self.stores: list[MessageStore] = [catalog.stores[partition] for partition in self._bases]
        self._check_counts()

    def _check_counts(self) -> None:
        """The record carries its results: what was added must be what it says."""
        counts = self._transaction.staged.counts()
        if counts != {p.partition: p.count for p in self._record.placements}:
            raise CorruptJournal(
                f"transaction {self._transaction.number} committed at LSN {self.lsn} says {self._record.placements}, "
                f"its adds are {counts}: a record is missing from the journal. No record was changed. {NEXT_STEP}",
                JOURNAL_DIRECTORY,
            )

    @property
    def is_small(self) -> bool:
        """Whether it can be applied in one turn: within the size of a slice, and all of it in memory."""
        staged = self._transaction.staged
        return staged.bytes <= self._small_bytes and len(staged.held) == len(staged.entries)

    @property
    def number(self) -> TransactionNumber:
        """Of the transaction."""
        return self._transaction.number

    @property
    def applied_entries(self) -> int:
        """How many adds are in their logs."""
        return self._next

    def step(self, forced_lsn: int) -> bool:
        """Apply up to a slice; return whether all is done. ``short_of_memory`` says that a flush must come first.

        Frames that are not in memory can be read back once the journal is forced up to them. Only once the
        commit itself is may the flusher take what is here: no segment is touched before.
        """
        staged = self._transaction.staged
        left = self._small_bytes if self.is_small else self._slice_bytes
        self.short_of_memory = False
        while self._next < len(staged.entries):
            entry = staged.entries[self._next]
            if left <= 0 or (self._next not in staged.held and entry.lsn > forced_lsn):
                return False
            frames = self._staging.load(self._transaction.number, staged, self._next)
            store = self._catalog.stores[entry.partition]
            base = self._bases[entry.partition]
            try:
                self._catalog.place(store, frames, base, entry.count, self._record.at)
            except MemoryExhausted:
                self.short_of_memory = True
                self._allow_flush(forced_lsn)
                return False
            self._bases[entry.partition] = base + entry.count
            left -= entry.size
            self._next += 1
        self._staging.release(staged)
        return True

    def _allow_flush(self, forced_lsn: int) -> None:
        if forced_lsn >= self.lsn:
            for store in self.stores:
                store.allow_flush(self._bases[store.number])
