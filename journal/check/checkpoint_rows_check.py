"""The check of the newest checkpoint against the records that led to it: topics, starts, logs, transactions, clients.

Records are followed from where the state is known, the older checkpoint or the very first record, up to the newest
checkpoint's LSN. If somebody has changed one of the two, with checksums that fit, they disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from journal.check.effects import Decision, Effect, LogEnds, Undecided
from journal.check.replayed_folds import ReplayedFolds
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.log.catalog import TopicRow, owner_of, topic_rows
from journal.records.outcome import Outcome
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import (
    ArchiveSet,
    LogStartMoved,
    PartitionsAdded,
    Placement,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from journal.settings import TopicSettings
from journal.transaction_states import Cause, State, TransactionNumber
from journal.transactions.table import live_rows, remembered
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected, Finding
from journal.xid import Xid


class Ending(NamedTuple):
    """The end of a transaction; ``placements`` are (partition, first offset, messages)."""

    decision: Decision
    xid: Xid | None
    placements: tuple[tuple[int, int, int], ...]

    def __str__(self) -> str:
        state, cause, at, by, why = self.decision
        ended_by = f" by {by}" if by else ""
        why = f": {why!r}" if why else ""
        placed = f", placed {[tuple(each) for each in self.placements]}" if self.placements else ""
        return f"{state.name} ({cause.name}) at {at}{ended_by}{why}, xid {self.xid}{placed}"


class FoldCheck:
    """Follows records in order, from ``since`` on: a checkpoint, or None if the first record of all is among them."""

    def __init__(self, since: Checkpoint | None, newest: Checkpoint | None) -> None:
        self._newest = newest
        self._from = since.header.lsn if since is not None else 0
        self._known = newest is not None and since is not newest
        self._topics = {row.name: row for row in topic_rows(since)} if since is not None else {}
        self._starts = (
            {store.number: store.start_offset for store in since.stores} if since is not None else {}
        )
        self._reached = self._from
        self._logs = LogEnds()
        self._live = Undecided()
        if since is not None:
            self._live.know(live_rows(since))
        self._ended: dict[TransactionNumber, Ending] = {}
        self._moved: dict[int, set[int]] = {}
        """The starts that logs got after the newest checkpoint, which may have them already."""
        self._replayed = ReplayedFolds(since)

    def follow(self, entry: JournalEntry, effect: Effect) -> Iterator[Finding]:
        """Follow the next record; yield what is wrong with it."""
        if not self._known or self._newest is None or entry.lsn <= self._from:
            return
        self._reached = entry.lsn
        if entry.lsn <= self._newest.header.lsn:
            for problem in self._replayed.follow(entry):
                what = f"{type(entry.record).__name__} at LSN {entry.lsn}: {problem}"
                affects = Affected(first_lsn=entry.lsn, last_lsn=entry.lsn)
                yield Finding(entry.path, entry.position, what, affects=affects)
            self._of_logs(entry, effect)
            self._of_transactions(entry, effect)
        elif isinstance(entry.record, LogStartMoved):
            self._moved.setdefault(entry.record.partition, set()).add(entry.record.start_offset)

    def interrupted(self) -> None:
        """Note that records are missing here: nothing more is known."""
        self._known = False

    def ended(self) -> Iterator[Finding]:
        """Yield what differs in the checkpoint; call it after the last record."""
        if self._known and self._newest is not None and self._reached >= self._newest.header.lsn:
            path = filenames.checkpoint_file(self._newest.header.lsn)
            for what, affects in (*self._wrong_logs(self._newest), *self._wrong_transactions(self._newest)):
                yield Finding(path, 0, what, affects=affects)
            yield from self._replayed.against(self._newest)

    # -- what the records say --------------------------------------------------------------------------

    def _of_logs(self, entry: JournalEntry, effect: Effect) -> None:
        self._logs.follow(entry, effect)
        match entry.record:
            case TopicCreated() as made:
                self._topics[made.topic] = TopicRow(
                    made.topic, made.settings, [(made.first_partition, made.partitions)], made.at, made.id,
                    owner_of(made),
                )  # fmt: skip
            case TopicDeleted() as gone:
                self._topics.pop(gone.topic, None)
            case TopicAltered() as altered:
                self._alter(altered.topic, altered.settings, altered.added)
            case ArchiveSet() as archive:
                self._alter(OUTCOMES_TOPIC, archive.settings)
            case LogStartMoved() as moved:
                self._starts[moved.partition] = moved.start_offset

    def _alter(self, topic: str, settings: TopicSettings, added: PartitionsAdded | None = None) -> None:
        if (known := self._topics.get(topic)) is not None:
            more = [(added.first_partition, added.partitions)] if added is not None else []
            self._topics[topic] = replace(known, settings=settings, ranges=[*known.ranges, *more])

    def _of_transactions(self, entry: JournalEntry, effect: Effect) -> None:
        number = effect.number
        if number is not None and effect.decision is not None:
            _, xid = self._live.found.get(number, (False, None))
            self._ended[number] = Ending(effect.decision, xid or effect.xid, _tuples(effect.placements))
        self._live.follow(entry, effect)

    # -- what the checkpoint says ----------------------------------------------------------------------

    def _wrong_logs(self, newest: Checkpoint) -> Iterator[tuple[str, Affected]]:
        said = {row.name: row for row in topic_rows(newest)}
        for name in sorted(said.keys() | self._topics.keys()):
            one, other = said.get(name), self._topics.get(name)
            if one != other:
                yield f"it has topic {name!r} as {one}, by the journal it is {other}", Affected(name)
        for store in newest.stores:
            affects = Affected(store.topic, store.index)
            start, end = self._starts.get(store.number, 0), self._logs.ends.get(store.number)
            if store.start_offset != start and store.start_offset not in self._moved.get(store.number, ()):
                yield f"the log starts at offset {store.start_offset}, by the journal at {start}", affects
            if end is not None and store.end_offset != end:
                yield f"the log ended at offset {store.end_offset} then, by the journal at {end}", affects

    def _wrong_transactions(self, newest: Checkpoint) -> Iterator[tuple[str, Affected]]:
        rows = {row.number: row for row in live_rows(newest)}
        for number in sorted(rows.keys() | self._live.found.keys()):
            row, known = rows.get(number), self._live.found.get(number)
            if row is None:
                what = "it does not have the transaction, by the journal it was undecided"
            elif known is None:
                ended = self._ended.get(number)
                if ended is None and not row.totals.messages and row.state is not State.PREPARED:
                    continue  # every add was refused
                what = f"the transaction is undecided, by the journal it is {ended or 'not there'}"
            elif (row.state is State.PREPARED, row.xid) != known:
                what = f"the transaction is {row.state.name} with xid {row.xid}, by the journal"
                what = f"{what} {'PREPARED' if known[0] else 'ACTIVE'} with xid {known[1]}"
            else:
                continue
            xid = row.xid if row is not None else known[1] if known is not None else None
            yield what, Affected(transaction=number, xid=xid)
        for outcome in remembered(newest):
            decision = Decision(outcome.state, outcome.cause, outcome.at, outcome.by, outcome.why)
            said = Ending(decision, outcome.xid, _tuples(outcome.placements))
            ended = self._ended.get(outcome.number)
            if ended != said and (ended is not None or self._knows_end(outcome)):
                what = f"the transaction is {said}, by the journal {ended or 'it never ended'}"
                yield what, Affected(transaction=outcome.number, xid=outcome.xid)

    def _knows_end(self, outcome: Outcome) -> bool:
        """Return whether a record must have ended it. A start rolls back active ones without a record for each."""
        return not self._from and outcome.cause is not Cause.RESTART


def _tuples(placements: Iterable[Placement]) -> tuple[tuple[int, int, int], ...]:
    return tuple((each.partition, each.base_offset, each.count) for each in placements)
