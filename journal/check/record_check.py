"""The check of records against the state before them, as a start sees them: which one it would refuse, and why.

It follows the records above the newest checkpoint: no start applies others. Memory grows with the broker's own state:
undecided transactions, remembered outcomes, producers, groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from journal.check.effects import Effect, LogEnds, frames_of_add
from journal.check.replayed_folds import ReplayedFolds
from journal.errors import InvalidFrame
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import walk
from journal.log.catalog import head_of_catalog, topic_rows
from journal.records.outcome import Outcome
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import (
    AnyRecord,
    ArchiveSet,
    Due,
    LogStartMoved,
    Messages,
    PartitionsAdded,
    Placement,
    Published,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionsForgotten,
    sends,
    slices,
)
from journal.records.run_checks import check_runs
from journal.transaction_states import State, TransactionNumber
from journal.transactions.outcomes import OutcomeTable
from journal.transactions.table import live_rows, remembered
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected, Finding
from journal.xid import Xid


class _Live:
    """An undecided transaction: how many messages it has for each partition, and its xid."""

    __slots__ = ("counts", "prepared", "xid")

    def __init__(self, prepared: bool = False, xid: Xid | None = None) -> None:
        self.counts: Counter[int] = Counter()
        self.prepared = prepared
        self.xid = xid


class RecordCheck:
    """Follows records in order, up to the first that a start would refuse: the state behind it is unknown."""

    def __init__(self, newest: Checkpoint | None) -> None:
        stores = newest.stores if newest is not None else []
        self.logs = LogEnds()
        self.logs.know(stores)
        self.logs.ends.update((store.number, store.end_offset) for store in stores)
        self._lsn, self.next_partition = 0, 1
        self._topics: dict[str, list[int]] = {}
        """The numbers of each topic's partitions, by index."""
        self._live: dict[TransactionNumber, _Live] = {}
        self._xids: dict[Xid, TransactionNumber] = {}
        self._outcomes = OutcomeTable()
        self._folds: ReplayedFolds | None = ReplayedFolds(newest)
        """The state; None where it is unknown."""
        if newest is not None:
            self._know(newest)

    def _know(self, newest: Checkpoint) -> None:
        self._lsn = newest.header.lsn
        self.next_partition = head_of_catalog(newest).next_partition
        for topic in topic_rows(newest):
            self._topics[topic.name] = topic.numbers
        for row in live_rows(newest):
            known = self._live[row.number] = _Live(row.state is State.PREPARED, row.xid)
            for entry in row.entries:
                for partition in entry.targets:
                    known.counts[partition] += entry.count
        self._xids = {live.xid: number for number, live in self._live.items() if live.xid is not None}
        for outcome in remembered(newest):
            self._outcomes.remember(outcome)

    @property
    def is_complete(self) -> bool:
        """Return whether all records so far could be followed."""
        return self._folds is not None

    def interrupted(self) -> None:
        """Note that records are missing here."""
        self._folds = None

    def follow(self, entry: JournalEntry, effect: Effect, start: int) -> Finding | None:
        """Follow the next record, of a file of that start; return what is wrong with it."""
        of_start = _of_another_start(entry.record, start)
        if entry.lsn <= self._lsn:  # no start reads what it says
            return _found(entry, effect, of_start, refused=False) if of_start else None
        found = None
        if self._folds is not None:
            problems = chain(
                [of_start] * bool(of_start), self._problems(entry, effect), self._folds.follow(entry)
            )
            if problem := next(problems, ""):
                self._folds = None
                found = _found(entry, effect, problem, refused=True)
            else:
                self._follow_transaction(entry, effect)
        self.logs.follow(entry, effect)
        match entry.record:
            case TopicCreated() as made:
                self._topics[made.topic] = []
                self._add(made.topic, made.added)
            case TopicAltered() as altered if altered.added is not None:
                self._add(altered.topic, altered.added)
            case TopicDeleted() as gone:
                self._topics.pop(gone.topic, None)
        return found

    def _add(self, topic: str, added: PartitionsAdded) -> None:
        self.next_partition = added.numbers.stop
        self._topics.setdefault(topic, []).extend(added.numbers)

    def _follow_transaction(self, entry: JournalEntry, effect: Effect) -> None:
        number = effect.number
        match entry.record:
            case Started():
                for gone in [each for each, live in self._live.items() if not live.prepared]:
                    self._end(gone)
            case TransactionsForgotten() as forgotten:
                self._outcomes.forget(forgotten)
        if number is None:
            return
        self._outcomes.prune(number.session, getattr(entry.record, "seen", 0))
        if effect.decision is not None:
            self._end(number)
            state, cause, at, by, why = effect.decision
            self._outcomes.remember(Outcome(number, state, cause, at, by=by, why=why))
            return
        known = self._live.setdefault(number, _Live(xid=effect.xid))
        known.prepared = known.prepared or effect.prepares
        if known.xid is None:
            known.xid = effect.xid
        if known.xid is not None:
            self._xids[known.xid] = number
        for add in effect.adds:
            for partition in add.targets:
                known.counts[partition] += add.count

    def _end(self, number: TransactionNumber) -> None:
        ended = self._live.pop(number, None)
        if ended is not None and ended.xid is not None:
            self._xids.pop(ended.xid, None)

    # -- what cannot be ----------------------------------------------------------------------------

    def _problems(self, entry: JournalEntry, effect: Effect) -> Iterator[str]:
        match entry.record:
            case TopicCreated() as made:
                if made.topic in self._topics:
                    yield f"topic {made.topic!r} was created twice"
                yield from self._misnumbered(0, made.added)
            case TopicDeleted() as gone:
                yield from self._undeletable(gone.topic)
            case LogStartMoved() as moved:
                end = self.logs.ends.get(moved.partition)
                if end is None or moved.start_offset > end:
                    yield f"the log of partition number {moved.partition} ends at offset {end}"
            case TopicAltered() as altered:
                yield from self._unalterable(altered)
            case ArchiveSet() if OUTCOMES_TOPIC not in self._topics:
                yield f"there is no topic {OUTCOMES_TOPIC!r}"
            case Messages() as sent:
                yield from _wrong_frames(sent.partition, sent.count, entry.data)
            case Due() as due:
                yield from _wrong_sends(due, entry.data)
            case Published() as published:
                yield from _wrong_publication(published, entry.data)
        if effect.number is not None:
            yield from self._wrong_state(effect.number, effect)
            yield from self._wrong_contents(entry, effect.number, effect)
        yield from self._misplaced(effect.placements)

    def _unalterable(self, altered: TopicAltered) -> Iterator[str]:
        known = self._topics.get(altered.topic)
        if known is None:
            yield f"there is no topic {altered.topic!r}"
        elif altered.added is not None:
            yield from self._misnumbered(len(known), altered.added)

    def _misnumbered(self, index: int, added: PartitionsAdded) -> Iterator[str]:
        if added.first_index != index:
            yield f"it gives the topic a partition {added.first_index}, its next one is {index}"
        if added.first_partition != self.next_partition:
            yield f"it gives partition number {added.first_partition}, the next one is {self.next_partition}"

    def _undeletable(self, topic: str) -> Iterator[str]:
        gone = self._topics.get(topic)
        if gone is None:
            yield f"there is no topic {topic!r}"
            return
        for number, live in self._live.items():
            if any(partition in gone for partition in live.counts):
                yield f"undecided transaction {number} has messages for topic {topic!r}"

    def _wrong_state(self, number: TransactionNumber, effect: Effect) -> Iterator[str]:
        known = self._live.get(number)
        if number in self._outcomes.by_number:
            yield f"transaction {number} has ended before"
        if known is not None and known.prepared and effect.decision is None:
            yield f"transaction {number} is prepared already"
        if effect.prepares and effect.xid is not None:
            holder = self._xids.get(effect.xid, number)
            if holder != number:
                yield f"transaction {holder} has xid {effect.xid} already"

    def _wrong_contents(
        self, entry: JournalEntry, number: TransactionNumber, effect: Effect
    ) -> Iterator[str]:
        if effect.problem:
            yield effect.problem
        known = self._live.get(number)
        counts = Counter(known.counts if known is not None else {})
        for add in effect.adds:
            for partition in add.targets:
                counts[partition] += add.count
                if partition not in self.logs.names:
                    yield f"there is no partition number {partition}"
            if add.checksum is not None:  # a run's
                yield from _wrong_frames(add.partition, add.count, frames_of_add(entry, add))
        if effect.outcome is State.COMMITTED:
            placed = {each.partition: each.count for each in effect.placements}
            if placed != counts:
                yield f"it places {placed} messages by partition, what was sent in it is {dict(counts)}"

    def _misplaced(self, placements: Iterable[Placement]) -> Iterator[str]:
        ends: dict[int, int] = {}
        for placed in placements:
            end = ends.get(placed.partition, self.logs.ends.get(placed.partition))
            if end is None:
                yield f"there is no partition number {placed.partition}"
            elif placed.base_offset != end:
                where = f"partition number {placed.partition} ends at {end}"
                yield f"it places messages from offset {placed.base_offset} on, {where}"
            ends[placed.partition] = placed.base_offset + placed.count


def _of_another_start(record: AnyRecord, start: int) -> str:
    if not isinstance(record, Started) or record.start == start:
        return ""
    return f"start {record.start} lies in a file of start {start}"


def _found(entry: JournalEntry, effect: Effect, problem: str, refused: bool) -> Finding:
    affects = Affected(first_lsn=entry.lsn, last_lsn=entry.lsn, transaction=effect.number, xid=effect.xid)
    what = f"{type(entry.record).__name__} at LSN {entry.lsn}: {problem}"
    return Finding(entry.path, entry.position, what, affects=affects, refused=refused)


def _wrong_sends(due: Due, data: memoryview) -> Iterator[str]:
    try:
        found = sends(due, data)
    except InvalidFrame as error:
        yield str(error)
        return
    for sent, frames in found:
        yield from _wrong_frames(sent.partition, sent.count, frames)


def _wrong_publication(published: Published, data: memoryview) -> Iterator[str]:
    try:
        check_runs(published)
        sends(published, data)
        found = slices(published, data)
    except InvalidFrame as error:
        yield str(error)
        return
    for run, frames in found:
        yield from _wrong_frames(run.partition, run.count, memoryview(frames))


def _wrong_frames(partition: int, count: int, frames: memoryview) -> Iterator[str]:
    try:
        held = sum(messages for *_, messages in walk(frames))
    except InvalidFrame as error:
        yield f"its messages for partition number {partition}: {error}"
        return
    if held != count:
        yield f"it says {count} messages for partition number {partition}, it holds {held}"
