"""The application of what a record places: messages are appended to their logs, at once or in slices."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from journal.constants import GROUP_BYTES, SLICED_COMMIT_BYTES
from journal.errors import MemoryExhausted
from journal.log.applied import Applied
from journal.log.catalog import Catalog
from journal.log.message_store import MessageStore
from journal.log.shared_run import SharedRun
from journal.records.copies import weight_of_runs
from journal.records.outcome import Outcome
from journal.records.record import Published, Run, TransactionCommitted, slices
from journal.records.transient import MOST_RUNS, is_volatile
from journal.transaction_states import TransactionNumber
from journal.transactions.commit_application import SlicedApply, misplaced
from journal.transactions.staging import Staged, Staging
from journal.transactions.state import Transaction


class Application:
    """Puts messages into logs, live and in replay alike."""

    def __init__(self, catalog: Catalog, staging: Staging) -> None:
        self._catalog, self._staging = catalog, staging
        self.slice_bytes, self.small_bytes = GROUP_BYTES, SLICED_COMMIT_BYTES
        """A commit of at most this many bytes, all in memory, is applied at once; others in slices."""

    def whole(
        self,
        lsn: int,
        record: TransactionCommitted,
        data: bytes | memoryview,
        outcome: Outcome,
        messages: int,
    ) -> Applied:
        """Apply the only record of a transaction."""
        catalog, runs, placements = self._catalog, record.runs, record.placements
        stores = catalog.stores
        if (
            len(runs) == len(placements) == 1 and not runs[0].start
        ):  # as most have: saves 8,000 of 160,000 instructions
            [run], [placement] = runs, placements
            if run.partition == placement.partition and placement.count == messages and not run.also:
                store = stores[run.partition]
                if store.end_offset < placement.base_offset + messages:  # live, the log has it already
                    catalog.place(store, data, placement.base_offset, messages, record.at)
                return Applied(outcome, (store,))
        if self.is_sliced(runs, len(data)):
            return self._as_staged(lsn, record, data, outcome)
        return Applied(outcome, self._at_once(record, data, placed_by(lsn, record)))

    def published(self, lsn: int, record: Published, data: bytes | memoryview) -> Applied:
        """Put messages that went through an exchange into the logs of the queues."""
        if self.is_applied_in_slices(record, len(data)):
            return self._as_staged(lsn, record, data, None)
        bases = {placed.partition: placed.base_offset for placed in record.placements}
        return Applied(None, self._at_once(record, data, bases))

    def _at_once(
        self, record: TransactionCommitted | Published, data: bytes | memoryview, bases: dict[int, int]
    ) -> list[MessageStore]:
        """Append each run to its logs, from these offsets on; return the logs."""
        stores = self._catalog.stores
        for run, frames in slices(record, data):
            targets = run.targets
            shared = SharedRun.of(frames, run.count, len(targets))
            for partition in targets:
                self._catalog.place(stores[partition], frames, bases[partition], run.count, record.at, shared)
                bases[partition] += run.count
            if shared is not None:
                shared.release()
        return [stores[partition] for partition in bases]

    def is_applied_in_slices(self, record: Published, size: int) -> bool:
        """Return whether messages with so many bytes are too much for one turn. What no journal has never is."""
        is_large = self.is_sliced(record.runs, size) or len(record.runs) > MOST_RUNS
        return is_large and not is_volatile(record, size)

    def staged(
        self, lsn: int, record: TransactionCommitted, transaction: Transaction, outcome: Outcome
    ) -> Applied:
        """Append the staged frames of a transaction to the logs: at once if they are few, else in slices."""
        if (store := self._one(record, transaction)) is not None:
            return Applied(outcome, (store,))
        applying = self._sliced(lsn, record, transaction)
        if applying.is_small and applying.step(lsn - 1):
            return Applied(outcome, applying.stores)
        return Applied(outcome, slices=applying)

    def _one(self, record: TransactionCommitted, transaction: Transaction) -> MessageStore | None:
        """Apply the most common commit, of one run that is in memory, as :class:`SlicedApply` would: 2.5 µs less.

        None if it is another one, or if there is no memory for it: then that one makes room.
        """
        staged = transaction.staged
        entries, placements = staged.entries, record.placements
        if len(entries) != 1 or len(placements) != 1 or not staged.held or staged.bytes > self.small_bytes:
            return None
        entry, placement = entries[0], placements[0]
        if placement.partition != entry.partition or placement.count != entry.count or entry.also:
            return None
        store = self._catalog.stores[entry.partition]
        try:
            store.replay(
                staged.held[0], placement.base_offset, entry.count, record.at, self._catalog.wall_offset
            )
        except MemoryExhausted:
            return None
        self._staging.release(staged)
        return store

    def is_sliced(self, runs: Sequence[Run], size: int) -> bool:
        """Return whether runs of that size together go to so many partitions each that a turn is too short for it."""
        return any(run.also for run in runs) and weight_of_runs(runs, size) > self.small_bytes

    def _as_staged(
        self,
        lsn: int,
        record: TransactionCommitted | Published,
        data: bytes | memoryview,
        outcome: Outcome | None,
    ) -> Applied:
        """Have a record that goes to many partitions applied in slices, as a transaction that was staged with it."""
        number = TransactionNumber(0, 0) if outcome is None else outcome.number
        transaction = Transaction(number, record.at, staged=Staged([], {}))
        checksum = 0
        for run, frames in slices(record, data):
            checksum = crc32c(frames, checksum)
            self._staging.hold(transaction.staged, run, bytes(frames), lsn, checksum)
        if isinstance(record, TransactionCommitted):
            for positions in record.positions:
                transaction.offsets += [(positions.group, offset) for offset in positions.offsets]
                transaction.settled.append((positions.group, 0))
        return Applied(outcome, slices=self._sliced(lsn, record, transaction))

    def _sliced(
        self, lsn: int, record: TransactionCommitted | Published, transaction: Transaction
    ) -> SlicedApply:
        return SlicedApply(
            lsn, record, transaction, self._staging, self._catalog, self.slice_bytes, self.small_bytes
        )


def placed_by(lsn: int, record: TransactionCommitted) -> dict[int, int]:
    """Return the first offset by partition of a record that begins and commits a transaction.

    Raises :class:`CorruptJournal` if it does not place exactly the messages of its runs.
    """
    counts: dict[int, int] = {}
    for run in record.runs:
        for partition in run.targets:
            counts[partition] = counts.get(partition, 0) + run.count
    if counts != {placement.partition: placement.count for placement in record.placements}:
        raise misplaced(TransactionNumber(record.session, record.serial), lsn, record.placements, counts)
    return {placement.partition: placement.base_offset for placement in record.placements}
