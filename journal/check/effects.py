"""The effect of each kind of record on a transaction, and on the logs: defined once, for all checks and repairs.

A new kind of record that affects a transaction is described in :func:`effect_of`, and nowhere else here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import msgspec

from journal.errors import InvalidFrame
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import HEADER, HEADER_BYTES
from journal.formats.store_state import StoreState
from journal.log.catalog import head_of_catalog
from journal.parties import Actor
from journal.records.group_entries import GroupPositions
from journal.records.record import (
    Due,
    Messages,
    Placement,
    Published,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionAdded,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    TransactionRolledBack,
    slices,
)
from journal.records.run_checks import check_runs
from journal.transaction_states import Cause, State, Totals, TransactionNumber
from journal.transactions.staging import Entry
from journal.transactions.state import TransactionRow
from journal.transactions.unsent import NO_TOTALS
from journal.wal.reader import JournalEntry
from journal.xid import Xid


@dataclass(frozen=True, slots=True)
class Add:
    """The place of the frames of one add, or of one run of a record; ``base``: stamped from that offset on.

    ``start`` is where they begin in the record's data. ``checksum`` is what the record states: over all frames for that
    partition up to their end. They go to the partitions of ``also``, too; those of partition 0 go nowhere.
    """

    partition: int
    count: int
    path: str
    position: int
    size: int
    base: int | None = None
    start: int = 0
    checksum: int | None = None
    also: Sequence[int] = ()

    @classmethod
    def staged(cls, entry: Entry, path: str) -> Self:
        """Return that of an entry in the staged file at ``path``."""
        return cls(entry.partition, entry.count, path, entry.position, entry.size, also=entry.also)

    @property
    def targets(self) -> Sequence[int]:
        """The partitions that they go to."""
        return (self.partition, *self.also) if self.partition else ()


class Decision(NamedTuple):
    """The end of a transaction; ``at`` is journal time."""

    state: State
    cause: Cause
    at: int
    by: Actor | None
    why: str


class Effect(msgspec.Struct, frozen=True, gc=False):
    """The effect of a record. ``number`` is its transaction's, None for a record without one.

    ``begins``: nothing was added before. ``requests`` is how many requests of a transaction the record makes, ``adds``
    are its frames, ``positions`` what it moves and settles of groups; ``problem`` is the reason why the frames are
    unknown, empty if they are known. ``decision`` ends the transaction. ``placements`` are where messages of logs begin
    by it: its own, for a record without a transaction. ``totals`` and ``checksum`` are what the client says that it
    sent: before, and in all.

    One is made for each record: 0.4 µs, as a tuple 2.2.
    """

    number: TransactionNumber | None = None
    xid: Xid | None = None
    begins: bool = False
    requests: int = 0
    adds: tuple[Add, ...] = ()
    positions: Sequence[GroupPositions] = ()
    prepares: bool = False
    decision: Decision | None = None
    placements: Sequence[Placement] = ()
    totals: Totals | None = None
    checksum: int | None = None
    problem: str = ""

    @property
    def outcome(self) -> State | None:
        """Return how the transaction ends; None if it does not."""
        return self.decision.state if self.decision is not None else None


NOTHING = Effect()


def effect_of(entry: JournalEntry) -> Effect:
    """Return the effect of a record on its transaction and on logs."""
    match entry.record:
        case Messages() as sent:
            return Effect(placements=(Placement(sent.partition, sent.base_offset, sent.count),))
        case Due() | Published() as placing:
            return Effect(placements=placing.placements)
        case TransactionAdded() as added:
            return _of_add(entry, added)
        case TransactionOffsetsAdded() as added:
            return Effect(
                TransactionNumber(added.session, added.serial),
                added.xid,
                requests=1,
                positions=(GroupPositions(added.group, added.id, added.offsets, added.settled),),
            )
        case TransactionPrepared() | TransactionCommitted() as record:
            return _of_deciding(entry, record)
        case TransactionRolledBack() as ended:
            number = TransactionNumber(ended.session, ended.serial)
            return Effect(number, decision=_decision(State.ROLLED_BACK, ended))
    return NOTHING


def _of_add(entry: JournalEntry, record: TransactionAdded) -> Effect:
    adds: tuple[Add, ...] = ()
    problem = ""
    try:
        check_runs(record)
        if record.runs:
            adds = tuple(_runs(entry, record))
        else:
            size = len(entry.data)
            position = entry.position + entry.length - size
            adds = (Add(record.partition, record.count, entry.path, position, size),)
    except InvalidFrame as error:
        problem = str(error)
    number = TransactionNumber(record.session, record.serial)
    return Effect(number, record.xid, requests=1, adds=adds, problem=problem)


def _of_deciding(entry: JournalEntry, record: TransactionPrepared | TransactionCommitted) -> Effect:
    begins = bool(record.runs or record.positions) and record.totals is None
    adds: tuple[Add, ...] = ()
    problem = ""
    try:
        check_runs(record)
        if record.runs or entry.data:
            adds = tuple(_runs(entry, record))
    except InvalidFrame as error:
        problem = str(error)
    return Effect(
        TransactionNumber(record.session, record.serial),
        record.xid,
        begins,
        adds=adds,
        positions=record.positions,
        prepares=isinstance(record, TransactionPrepared),
        decision=_decision(State.COMMITTED, record) if isinstance(record, TransactionCommitted) else None,
        placements=record.placements if isinstance(record, TransactionCommitted) else (),
        totals=NO_TOTALS if begins else record.totals,
        checksum=record.checksum if isinstance(record, TransactionCommitted) and record.runs else None,
        problem=problem,
    )


def _runs(
    entry: JournalEntry, record: TransactionAdded | TransactionPrepared | TransactionCommitted
) -> Iterator[Add]:
    """Yield the runs of a record; raises :class:`InvalidFrame` if they do not fit into its data."""
    start = entry.position + entry.length - len(entry.data)
    bases: dict[int, int] = {}
    if isinstance(record, TransactionCommitted):
        # The contents of the decision come behind what was added before.
        bases = {each.partition: each.base_offset + each.count for each in record.placements}
        for run in record.runs:
            for partition in run.targets:
                if partition in bases:
                    bases[partition] -= run.count
    for run, frames in slices(record, entry.data):
        base = bases.get(run.partition)
        size, position = len(frames), start + run.start
        yield Add(
            run.partition, run.count, entry.path, position, size, base, run.start, run.checksum, run.also
        )
        for partition in run.targets:
            if partition in bases:
                bases[partition] += run.count


def _decision(state: State, record: TransactionCommitted | TransactionRolledBack) -> Decision:
    return Decision(state, record.cause, record.at, record.by, record.why)


def frames_of_add(entry: JournalEntry, add: Add) -> memoryview:
    """Return the record's frames for that add."""
    start = add.position - (entry.position + entry.length - len(entry.data))
    return entry.data[start : start + add.size]


@dataclass(slots=True)
class AppendTimes:
    """The append times that records give to the messages they place.

    One is the record's journal time plus the wall clock at journal time 0, which the start that wrote it has found.
    """

    wall_offsets: dict[int, int] = field(default_factory=dict)
    """By start, as a checkpoint or its first record says it; if these are gone, as the frames of a send have it."""

    def know(self, checkpoint: Checkpoint) -> None:
        """Take in the start that wrote a checkpoint."""
        self.wall_offsets[checkpoint.header.start] = head_of_catalog(checkpoint).wall_offset

    def follow(self, entry: JournalEntry) -> None:
        """Follow the next record."""
        match entry.record:
            case Started() as started:
                self.wall_offsets[entry.start] = started.wall - started.at
            case Messages() as sent if (
                entry.start not in self.wall_offsets and len(entry.data) >= HEADER_BYTES
            ):
                self.wall_offsets[entry.start] = HEADER.unpack_from(entry.data)[3] - sent.at

    def of(self, entry: JournalEntry) -> int | None:
        """Return the append time of the messages that a record places; None if its start's clock is not known."""
        wall_offset = self.wall_offsets.get(entry.start)
        return None if wall_offset is None else entry.record.at + wall_offset


@dataclass(slots=True)
class LogEnds:
    """The names and ends of partitions: as a checkpoint has them, and as the later records change them."""

    names: dict[int, tuple[str, int]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    """The offset after the last message of each."""

    def know(self, stores: Iterable[StoreState]) -> None:
        """Add the partitions of a checkpoint."""
        for store in stores:
            self.names[store.number] = (store.topic, store.index)
            self.ends[store.number] = store.flushed_offset

    def follow(self, entry: JournalEntry, effect: Effect) -> None:
        """Follow the next record."""
        match entry.record:
            case TopicCreated() | TopicAltered() as made:
                self.add(made)
            case TopicDeleted() as gone:
                self.delete(gone.topic)
        for placed in effect.placements:
            self.ends[placed.partition] = placed.base_offset + placed.count

    def add(self, made: TopicCreated | TopicAltered) -> None:
        """Add the partitions that a record makes, if it makes any."""
        if made.added is not None:
            for index, number in enumerate(made.added.numbers, made.added.first_index):
                self.names[number] = (made.topic, index)
                self.ends.setdefault(number, 0)

    def delete(self, topic: str) -> set[int]:
        """Remove a topic; return the numbers of its partitions."""
        gone = {number for number, (name, _) in self.names.items() if name == topic}
        for number in gone:
            del self.names[number]
            self.ends.pop(number, None)
        return gone


@dataclass(slots=True)
class Undecided:
    """The transactions without an outcome, by number: whether each is prepared, and its xid."""

    found: dict[TransactionNumber, tuple[bool, Xid | None]] = field(default_factory=dict)

    def know(self, rows: Iterable[TransactionRow]) -> None:
        """Add the transactions of a checkpoint."""
        self.found.update((row.number, (row.state is State.PREPARED, row.xid)) for row in rows)

    def follow(self, entry: JournalEntry, effect: Effect) -> None:
        """Follow the next record; a start rolls back unprepared ones."""
        if isinstance(entry.record, Started):
            self.found = {number: known for number, known in self.found.items() if known[0]}
        number = effect.number
        if number is None:
            return
        if effect.decision is not None:
            self.found.pop(number, None)
            return
        prepared, xid = self.found.get(number, (False, None))
        self.found[number] = prepared or effect.prepares, xid or effect.xid
