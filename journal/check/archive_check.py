"""The check of the outcome archive against the journal: each outcome has its entry, and there is no other.

Records are followed in order. Each record that ends a transaction adds an expected entry; each record that fills the
archive must have exactly the next expected ones. Expected entries are made here from the records alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from journal.check.effects import Effect
from journal.errors import InvalidFrame
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import HEADER_BYTES, walk
from journal.parties import Actor
from journal.records import outcome_entry
from journal.records.outcome_entry import NEVER_PLACED, OUTCOMES_TOPIC, ArchivedOutcome
from journal.records.record import ArchiveSet, Messages, TopicCreated
from journal.transaction_states import Cause, State, Totals, TransactionNumber
from journal.transactions.outcome_archive import HeadRow, head_of
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected, Finding
from journal.xid import Xid

Part = tuple[int, int, int, int, int]
"""The messages of a transaction in one partition: its number, the first offset, messages, bytes, checksum."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An expected entry. ``totals``, ``parts`` and ``routed`` are None where the journal no longer has all of it."""

    lsn: int
    number: TransactionNumber
    state: State
    cause: Cause
    at: int
    by: Actor | None = None
    why: str = ""
    xid: Xid | None = None
    placements: tuple[tuple[int, int, int], ...] | None = None
    totals: Totals | None = None
    parts: tuple[Part, ...] | None = None
    routed: tuple[int, int] | None = None

    def differs(self, entry: ArchivedOutcome) -> str:
        """Return how the entry differs; empty if it does not."""
        for name in ("lsn", "number", "state", "cause", "at", "by", "why"):
            if getattr(entry, name) != getattr(self, name):
                return f"{name} {getattr(entry, name)!r}, the journal has {getattr(self, name)!r}"
        if self.totals is not None and self.xid != entry.xid:
            return f"xid {entry.xid}, the journal has {self.xid}"
        if self.totals is not None and self.totals != Totals(entry.messages, entry.requests, entry.checksum):
            return (
                f"{entry.messages} messages with checksum {entry.checksum:08x}, the journal has {self.totals}"
            )
        found = tuple((p.number, p.base_offset, p.count, p.bytes, p.checksum) for p in entry.parts)
        if self.placements is not None and self.placements != tuple(part[:3] for part in found):
            return f"placements {found}, the journal has {self.placements}"
        if self.parts is not None and self.parts != found:
            return f"parts {found}, the journal has {self.parts}"
        if self.routed is not None and self.routed != entry.routed:
            return f"{entry.routed} messages and bytes went through exchanges, by the journal {self.routed}"
        return ""


class ArchiveCheck:
    """The expected entries, compared with the archive. What came before ``known_from`` is unknown."""

    def __init__(self, oldest: Checkpoint | None) -> None:
        self._known_from = oldest.header.lsn if oldest is not None else 0
        self._head, frames = head_of(oldest) if oldest else (HeadRow(False, 0), [])
        self._waiting = [outcome_entry.unpack(frame[HEADER_BYTES:]) for frame in frames]
        self._expected: deque[Ended | ArchivedOutcome] = deque()
        self._strict = False
        self._on = False
        stores = oldest.stores if oldest is not None else []
        self._partition = next((s.number for s in stores if s.topic == OUTCOMES_TOPIC), 0)
        self.compared = 0

    def follow(self, entry: JournalEntry, ended: Callable[[], Iterable[Ended]]) -> Iterator[Finding]:
        """Follow the next record; ``ended`` returns the outcomes that it makes, if any."""
        if not self._strict and entry.lsn > self._known_from:
            self._strict, self._on = True, self._head.on
            self._expected = deque(self._waiting)
        match entry.record:
            case ArchiveSet() as turned:
                self._on = turned.on
            case TopicCreated() as made if made.topic == OUTCOMES_TOPIC:
                self._partition = made.first_partition
            case Messages() as sent if sent.partition == self._partition:
                yield from self._filled(entry, sent)
            case _ if self._on and self._strict:
                self._expected.extend(ended())

    def interrupted(self) -> None:
        """Note that records are missing here: nothing is expected until the end."""
        self._strict, self._known_from, self._on = False, 1 << 63, False
        self._expected.clear()

    def _filled(self, entry: JournalEntry, sent: Messages) -> Iterator[Finding]:
        try:
            frames = [entry.data[position : position + size] for position, size, _, _ in walk(entry.data)]
            found = [outcome_entry.unpack(frame[HEADER_BYTES:]) for frame in frames]
        except InvalidFrame as error:
            yield self._wrong(
                entry, sent.base_offset, f"what it puts into the outcome archive: {error}", None
            )
            return
        if not self._strict:
            return
        for offset, each in enumerate(found, sent.base_offset):
            while self._expected and self._expected[0].lsn < each.lsn:
                missing = self._expected.popleft()
                what = f"the archive has no entry for the outcome at LSN {missing.lsn}"
                yield self._wrong(entry, offset, what, missing)
            if not self._expected or self._expected[0].lsn > each.lsn:
                yield self._wrong(entry, offset, "an entry of what did not end, or not then", each)
                continue
            expected = self._expected.popleft()
            self.compared += 1
            if isinstance(expected, ArchivedOutcome):
                differs = "" if expected == each else "not what the checkpoint had of it"
            else:
                differs = expected.differs(each)
            if differs:
                yield self._wrong(entry, offset, f"an entry that says {differs}", each)

    def _wrong(
        self, entry: JournalEntry, offset: int, what: str, of: Ended | ArchivedOutcome | None
    ) -> Finding:
        affects = Affected(
            OUTCOMES_TOPIC, 0, offset, offset, entry.lsn, entry.lsn,
            of.number if of is not None else None, of.xid if of is not None else None,
        )  # fmt: skip
        return Finding(entry.path, entry.position, f"outcome archive: {what}", affects=affects)


def by_record(
    lsn: int,
    effect: Effect,
    xid: Xid | None,
    totals: Totals | None,
    parts: dict[int, tuple[int, int, int]] | None,
    routed: tuple[int, int] | None,
) -> Ended:
    """Return the expected entry of a record that ends a transaction; ``parts``: (messages, bytes, checksum) by
    partition; ``routed``: messages and bytes that went through exchanges.
    """
    assert effect.number is not None
    assert effect.decision is not None
    committed = effect.outcome is State.COMMITTED
    bases = {p.partition: p.base_offset for p in effect.placements}
    return Ended(
        lsn,
        effect.number,
        *effect.decision,
        xid,
        tuple((p.partition, p.base_offset, p.count) for p in effect.placements) if committed else None,
        totals,
        None if parts is None else tuple((n, bases.get(n, NEVER_PLACED), *part) for n, part in parts.items()),
        routed,
    )
