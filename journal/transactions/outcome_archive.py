"""The outcome archive: entries on their way to the log that keeps how transactions ended.

The archive is a log like any other, filled by ordinary sends that the engine makes itself. An entry gets its offset
when the transaction ends: one for each, without a gap. Entries that the log does not have yet wait here, and go into
the journal with the group that decided them. After a crash the same outcomes get the same offsets again, and entries
that the log has are not made twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec
from zope.interface import implementer

from journal.formats.checkpoint import Checkpoint
from journal.formats.checkpoint_rows import RowReader
from journal.formats.frame import HEADER_BYTES
from journal.interfaces import IFold
from journal.log.catalog import Catalog, Topic
from journal.log.message_store import MessageStore
from journal.records.outcome import Outcome
from journal.records.outcome_entry import NEVER_PLACED, OUTCOMES_TOPIC, PartFields, pack_outcome, unpack
from journal.records.record import AnyRecord, ArchiveSet, Messages, TopicCreated
from journal.records.transient import is_transient
from journal.settings import TopicSettings
from journal.transactions.state import Transaction

BATCH = 1_000
"""With this many waiting entries a send does not wait for the end of the group, so that its size is bounded."""


Later = Callable[[], bytes]
"""Makes the frame of an entry when it is wanted. In replay few are: the log has them a moment later."""


class HeadRow(msgspec.Struct, array_like=True, frozen=True):
    """The part of a checkpoint beside the waiting entries."""

    on: bool
    next_offset: int


def head_of(checkpoint: Checkpoint) -> tuple[HeadRow, list[bytes]]:
    """Return a checkpoint's state of the archive, and the frames of the waiting entries; none if it has no rows."""
    head, *frames = checkpoint.folds.get("archive") or [HeadRow(False, 0)]
    return head, frames


@implementer(IFold)
class OutcomeArchive:
    """The fold that gives outcomes their places in the archive. ``on`` is journaled: replay reads no setting.

    ``next_offset`` less the number of ``waiting`` is always where the log ends, or before it, while that is replayed.
    """

    name = "archive"
    handles = (ArchiveSet,)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.on = False
        self.next_offset = 0
        self.waiting: deque[bytes | Later] = deque()
        """The frames of entries, in the order of their offsets."""
        self._store: MessageStore | None = None

    # -- questions ---------------------------------------------------------------------------------

    @property
    def topic(self) -> Topic | None:
        """The archive's topic, if there is one: it stays when the archive is turned off."""
        return self._catalog.topics.get(OUTCOMES_TOPIC)

    @property
    def store(self) -> MessageStore:
        """The archive's log. It exists while any entry waits."""
        if self._store is None:
            self._store = self._catalog.topics[OUTCOMES_TOPIC].partitions[0]
        return self._store

    def judge(self, settings: TopicSettings | None, at: int) -> list[AnyRecord]:
        """Return the records that turn the archive on, with these settings, or off (None); none if it is so already."""
        topic = self.topic
        if settings is None:
            return [ArchiveSet(False, topic.settings, at)] if self.on and topic is not None else []
        if topic is None:
            made = TopicCreated(OUTCOMES_TOPIC, self._catalog.next_partition, 1, settings, at)
            return [made, ArchiveSet(True, settings, at)]
        return [] if self.on and topic.settings == settings else [ArchiveSet(True, settings, at)]

    def send(self, at: int) -> tuple[Messages, memoryview]:
        """Append all waiting entries to the log; return the record of that, and its data.

        Raises :class:`journal.errors.MemoryExhausted` before anything has changed.
        """
        store, base = self.store, self.store.end_offset
        frames = self._pack()
        count = len(self.waiting)
        view = store.append(b"".join(frames), count, at, self._catalog.wall_offset)
        self.waiting.clear()
        return Messages(store.number, base, count, at), view

    def _pack(self) -> list[bytes]:
        """Return the frames of all waiting entries; they are made once."""
        frames = [each if type(each) is bytes else cast(Later, each)() for each in self.waiting]
        self.waiting = deque(frames)
        return frames

    # -- the fold ----------------------------------------------------------------------------------

    def note(self, lsn: int, outcome: Outcome, requests: int, checksum: int, parts: list[PartFields]) -> None:
        """Note that a transaction has ended while the archive is on."""
        offset = self.next_offset
        self.next_offset = offset + 1
        if offset >= self.store.end_offset:
            self.waiting.append(pack_outcome(lsn, outcome, requests, checksum, parts))
            if len(self.waiting) > BATCH:
                self.settle()

    def note_transaction(self, lsn: int, outcome: Outcome, transaction: Transaction) -> None:
        """Do what :meth:`note` does, for a transaction from the table."""
        stores = self._catalog.stores
        bases = {placement.partition: placement.base_offset for placement in outcome.placements}
        parts = []
        for number, count, size, checksum in transaction.parts():
            if is_transient(number):
                continue
            log = stores[number]
            parts.append(
                (log.topic, log.index, number, bases.get(number, NEVER_PLACED), count, size, checksum)
            )
        self.note(lsn, outcome, transaction.requests, transaction.checksum, parts)

    def note_all(self, count: int, outcomes: Iterable[Later]) -> None:
        """Do what :meth:`note` does, for ``count`` outcomes in replay: 0.2 µs each."""
        self.next_offset += count
        self.waiting.extend(outcomes)
        if len(self.waiting) > BATCH:
            self.settle()

    def settle(self) -> None:
        """Drop entries that the log has by now: in replay, they come after they were made to wait."""
        waiting = self.waiting
        if not waiting:
            return
        for _ in range(min(len(waiting), self.store.end_offset - (self.next_offset - len(waiting)))):
            waiting.popleft()

    def apply(self, lsn: int, record: AnyRecord, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state."""
        assert isinstance(record, ArchiveSet)
        self.settle()
        self.on = record.on

    # -- checkpoints -------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[Any]:
        """Return the archive's state, then the waiting entries."""
        frames = self._pack() if self.waiting else []
        return iter([HeadRow(self.on, self.next_offset), *frames])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint; each frame must hold an entry."""
        rows.take(HeadRow)
        while rows.left:
            rows.take(bytes, lambda frame: unpack(frame[HEADER_BYTES:]))

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        head, *frames = rows
        self.on, self.next_offset = head.on, head.next_offset
        self.waiting = deque(frames)
        self._store = None
