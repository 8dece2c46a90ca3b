"""What is lost, by name: partitions and offsets, transactions by xid, topics, groups, and LSNs that nobody can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from journal.check.effects import Effect, LogEnds, Undecided, effect_of
from journal.check.findings import Affected
from journal.formats.record import OffsetsCommitted, TopicCreated, TopicDeleted
from journal.formats.store_state import StoreState
from journal.transaction import State, TransactionNumber
from journal.transactions.state import TransactionRow
from journal.wal.reader import JournalEntry
from journal.words import count_text, span
from journal.xid import Xid

MOST_NAMED = 1000
"""Transactions that are named one by one; the evidence has all of them."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that is lost: a sentence, and the same as data."""

    text: str
    what: Affected


@dataclass(slots=True)
class Names:
    """What partitions are called and where they end, and which transactions are undecided, in all that is kept."""

    logs: LogEnds = field(default_factory=LogEnds)
    undecided: Undecided = field(default_factory=Undecided)

    def know(self, stores: list[StoreState], rows: list[TransactionRow]) -> None:
        """What a checkpoint has."""
        self.logs.know(stores)
        self.undecided.know(rows)

    def follow(self, entry: JournalEntry) -> None:
        """A record that is kept."""
        effect = effect_of(entry)
        self.logs.follow(entry, effect)
        self.undecided.follow(entry, effect)


@dataclass(slots=True)
class LostRecords:
    """Gathers what readable records behind the cut would have done."""

    names: Names
    _messages: dict[int, tuple[int, int]] = field(default_factory=dict)
    _xids: dict[TransactionNumber, Xid] = field(default_factory=dict)
    _transactions: dict[TransactionNumber, str] = field(default_factory=dict)
    _others: list[str] = field(default_factory=list)
    _groups: set[str] = field(default_factory=set)
    _uncounted: int = 0

    def follow(self, entry: JournalEntry) -> None:
        """A record that is lost."""
        effect = effect_of(entry)
        for placed in effect.placements:
            self._place(placed.partition, placed.base_offset, placed.count)
        if effect.number is not None:
            self._step(effect.number, effect)
        match entry.record:
            case TopicCreated() as made:
                self.names.logs.create(made)
                self._others.append(
                    f"the creation of topic {made.topic!r} ({count_text(made.partitions, 'partition')})"
                )
            case TopicDeleted() as gone:
                self._others.append(f"the deletion of topic {gone.topic!r}: it is there again")
            case OffsetsCommitted() as moved:
                self._groups.add(moved.group)

    def _step(self, number: TransactionNumber, effect: Effect) -> None:
        ends = effect.prepares or effect.decision is not None
        if effect.xid is not None and (ends or len(self._xids) < MOST_NAMED):
            self._xids[number] = effect.xid
        if effect.prepares:
            self._end(number, "its prepare")
        if effect.outcome is State.COMMITTED:
            self._end(number, "its commit")
            self._groups.update(each.group for each in effect.positions)
        elif effect.outcome is State.ROLLED_BACK:
            self._end(number, "its rollback")

    def _place(self, partition: int, base: int, count: int) -> None:
        first, end = self._messages.get(partition, (base, base))
        self._messages[partition] = (min(first, base), max(end, base + count))

    def _end(self, number: TransactionNumber, what: str) -> None:
        if number in self._transactions or len(self._transactions) < MOST_NAMED:
            self._transactions[number] = what
        else:
            self._uncounted += 1

    def told(self) -> list[Loss]:
        """All of it, each thing once."""
        losses = list(self._partitions())
        for number, what in self._transactions.items():
            xid = self._xids.get(number)
            if xid is not None:
                text = f"transaction {number} (xid {xid}): {what}"
                losses.append(Loss(text, Affected(transaction=number, xid=xid)))
        losses += self._without_xid()
        if self._uncounted:
            losses.append(Loss(f"{self._uncounted} more ends of transactions", Affected()))
        losses += [Loss(text, Affected()) for text in self._others]
        losses += [Loss(f"positions of group {group!r}", Affected()) for group in sorted(self._groups)]
        return losses

    def maybe_prepared(self) -> list[Loss]:
        """Transactions that may have been prepared by a record which nobody can read; that start rolls them back."""
        found: list[Loss] = []
        for number, (prepared, xid) in self.names.undecided.found.items():
            if not prepared and number not in self._transactions and len(found) < MOST_NAMED:
                named = f"transaction {number}" + (f" (xid {xid})" if xid is not None else "")
                text = f"{named}: its prepare, if what cannot be read held one; it is rolled back"
                found.append(Loss(text, Affected(transaction=number, xid=xid)))
        return found

    def _without_xid(self) -> list[Loss]:
        """One line for each session: nobody but its client ever knew these by a name."""
        sessions: dict[int, list[int]] = {}
        for number in self._transactions:
            if number not in self._xids:
                sessions.setdefault(number.session, []).append(number.serial)
        return [Loss(_ends(session, serials), Affected()) for session, serials in sessions.items()]

    def _partitions(self) -> Iterator[Loss]:
        """What is behind the end that is kept of each; nothing is where the segments have it all."""
        for partition, (_, end) in sorted(self._messages.items()):
            first = self.names.logs.ends.get(partition, 0)
            if first < end:
                yield self._partition(partition, first, end - 1)

    def _partition(self, partition: int, first: int, last: int) -> Loss:
        topic, index = self.names.logs.names.get(partition, (f"partition number {partition}", 0))
        return _messages(topic, index, first, last)


def _ends(session: int, serials: list[int]) -> str:
    if len(serials) == 1:
        return f"the end of a transaction without an xid, {session}-{serials[0]}"
    between = f"{session}-{min(serials)} to {session}-{max(serials)}"
    return f"the ends of {len(serials):,} transactions without an xid, {between}"


def lost_offsets(store: StoreState, ranges: list[tuple[int, int]]) -> list[Loss]:
    """Messages of segments that nothing holds any more; offsets inclusive."""
    return [_messages(store.topic, store.index, first, last) for first, last in ranges]


def unproven_offsets(
    store: StoreState, unproven: list[tuple[int, int]], lost: list[tuple[int, int]], accepted: bool
) -> list[Loss]:
    """Messages of damaged segments whose own checksums agree, and of which nothing else is known; offsets inclusive.

    They are told if they were ``accepted``, or are among what is ``lost``: not where the journal had them.
    """
    found = []
    for first, last in unproven:
        gone = any(one <= last and first <= other for one, other in lost)
        if not (accepted or gone):
            continue
        count = f"{span('offset', first, last)} ({count_text(last - first + 1, 'message')})"
        why = "fulfil their own checksums, but nothing proves that they are of this log"
        text = f"{store.topic}-{store.index}: {count} {why}"
        text += ": kept all the same" if accepted else ": lost, unless --accept-unproven is given"
        found.append(Loss(text, Affected(store.topic, store.index, first, last) if accepted else Affected()))
    return found


def _messages(topic: str, index: int, first: int, last: int) -> Loss:
    what = f"{span('offset', first, last)} ({count_text(last - first + 1, 'message')})"
    return Loss(f"{topic}-{index}: {what}", Affected(topic, index, first, last))


def lost_lsns(first: int, last: int | None) -> Loss:
    """Records that cannot be read: what they did is not known."""
    if last is None:
        text = f"what came after, from LSN {first} on, if anything did: nothing of it is left"
    else:
        text = f"whatever {span('LSN', first, last)} held: that part of the journal cannot be read"
    return Loss(text, Affected(first_lsn=first, last_lsn=last))


def later_lsns(first: int) -> Loss:
    """The journal is of an earlier moment, as a log tells that is not: others may have been set back with it."""
    text = (
        f"what came after the moment of this journal, from LSN {first} on: messages, positions and decisions of it may "
        "be missing anywhere, also where no log tells"
    )
    return Loss(text, Affected(first_lsn=first))


def unproven_messages(affects: Affected) -> Loss:
    """Sound messages that the journal does not have, for it is of an earlier moment."""
    text = f"{affects}: sound messages that are not in the journal; new messages get these offsets"
    return Loss(text, affects)
