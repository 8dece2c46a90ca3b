"""Losses of a repair are named: by partition and offsets, by xid, topic, group, or by LSNs that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from journal.check.effects import Effect, LogEnds, Undecided, effect_of
from journal.folds.queues import DeclaredQueue
from journal.formats.store_state import StoreState
from journal.records.access_entries import RuleKey
from journal.records.group_entries import GroupPositions
from journal.records.queue_entries import QUEUE_GROUP, QUEUE_TOPIC_PREFIX
from journal.records.record import (
    AccessSet,
    AnyRecord,
    Bound,
    Cancelled,
    Due,
    ExchangeDeclared,
    ExchangeDeleted,
    GroupAltered,
    LogStartMoved,
    OffsetsCommitted,
    PartitionsClaimed,
    Published,
    RuleSet,
    StreamClaimed,
    StreamReleased,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    Unbound,
    UserRemoved,
    UserSet,
    WallClockTold,
)
from journal.transaction_states import State, TransactionNumber
from journal.transactions.state import TransactionRow
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected
from journal.words import count_text, span
from journal.xid import Xid

MOST_NAMED = 1000
"""How many transactions are named one by one; the evidence has all of them."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss: a sentence, and the same as data."""

    text: str
    what: Affected


@dataclass(slots=True)
class Names:
    """The names and ends of partitions, the undecided transactions, and the queues by their topics, in all that is
    kept.
    """

    logs: LogEnds = field(default_factory=LogEnds)
    undecided: Undecided = field(default_factory=Undecided)
    queues: dict[str, str] = field(default_factory=dict)

    def know(
        self, stores: list[StoreState], rows: list[TransactionRow], queues: Iterable[DeclaredQueue] = ()
    ) -> None:
        """Take in what a checkpoint has."""
        self.logs.know(stores)
        self.undecided.know(rows)
        self.queues.update((queue.topic, queue.name) for queue in queues)

    def follow(self, entry: JournalEntry) -> None:
        """Take in a record that is kept."""
        effect = effect_of(entry)
        self.logs.follow(entry, effect)
        self.undecided.follow(entry, effect)
        if isinstance(entry.record, TopicCreated):
            self.add(entry.record)

    def add(self, made: TopicCreated) -> None:
        """Take in what a topic is called, and the queue that it is of."""
        self.logs.add(made)
        if made.queue is not None:
            self.queues[made.topic] = made.queue.name

    def of(self, topic: str, index: int) -> str:
        """Return what people call a partition."""
        queue = self.queues.get(topic)
        return f"{topic}-{index}" if queue is None else f"queue {queue!r} ({topic}-{index})"


@dataclass(slots=True)
class LostAccess:
    """Gathers what the readable records behind the cut said of users and rules."""

    _users: set[str] = field(default_factory=set)
    _rules: set[RuleKey] = field(default_factory=set)
    _is_switched: bool = False

    def follow(self, record: AnyRecord) -> None:
        """Take in a record that is lost."""
        match record:
            case UserSet():
                self._users.add(record.user.name)
            case UserRemoved():
                self._users.add(record.name)
            case RuleSet():
                self._rules.add(record.rule.key)
            case AccessSet():
                self._is_switched = True

    def told(self) -> Iterator[str]:
        """Say what is old: who was sent away may come in again."""
        for name in sorted(self._users):
            yield (
                f"what was last said of user {name!r}: whether there is one, its password, certificates, tokens and "
                "roles are as before"
            )
        if self._rules:
            count = count_text(len(self._rules), "rule")
            yield f"changes of {count}: rights that were taken away may be there again"
        if self._is_switched:
            yield "whether everybody has to log in: it is as before"


@dataclass(slots=True)
class LostSchedule:
    """Gathers what became of scheduled messages behind the cut."""

    _due: int = 0
    _routed: int = 0
    _taken_back: int = 0
    _released: bool = False

    def follow(self, record: AnyRecord) -> None:
        """Take in a record that is lost."""
        match record:
            case Due():
                self._due += len(record.ids)
            case Published():
                self._routed += len(record.ids)
            case Cancelled():
                self._taken_back += len(record.messages)
            case TransactionCommitted():
                self._taken_back += len(record.taken_back)
            case WallClockTold():
                self._released = True

    def told(self) -> Iterator[str]:
        """Yield what is lost of all this."""
        if self._due:
            count = count_text(self._due, "scheduled message")
            yield f"that {count} had gone to their partitions: they may be there, and come again"
        if self._routed:
            count = count_text(self._routed, "message")
            yield f"that {count} had waited at exchanges and gone on: they may be in queues, and come again"
        if self._taken_back:
            yield f"that {count_text(self._taken_back, 'scheduled message')} had been taken back: they come"
        if self._released:
            yield "jumps of the wall clock: what is scheduled may come earlier by them, or wait for a release again"


@dataclass(slots=True)
class LostQueues:
    """Gathers what became of queues, exchanges and bindings behind the cut."""

    _names: Names
    _ends: list[str] = field(default_factory=list)
    _bound: int = 0
    _unbound: int = 0
    _settled: bool = False

    def follow(self, record: AnyRecord) -> None:
        """Take in a record that is lost."""
        match record:
            case TopicCreated() if record.queue is not None:
                self._names.add(record)
                self._ends.append(f"the declaration of queue {record.queue.name!r}")
            case TopicDeleted() if record.topic.startswith(QUEUE_TOPIC_PREFIX):
                queue = self._names.queues.get(record.topic, record.topic)
                self._ends.append(f"the deletion of queue {queue!r}: it is there again")
            case ExchangeDeclared():
                self._ends.append(f"the declaration of exchange {record.exchange!r}")
            case ExchangeDeleted():
                self._ends.append(f"the deletion of exchange {record.exchange!r}: it is there again")
            case Bound():
                self._bound += 1
            case Unbound():
                self._unbound += 1

    def settle(self, positions: GroupPositions) -> bool:
        """Take in what a group settles that is lost; return whether the group is that of queues."""
        is_ours = positions.group == QUEUE_GROUP
        self._settled = self._settled or is_ours
        return is_ours

    def told(self) -> Iterator[str]:
        """Yield what is lost of all this."""
        yield from self._ends
        if self._bound:
            yield f"that {count_text(self._bound, 'binding')} had been made: messages do not go that way"
        if self._unbound:
            yield f"that {count_text(self._unbound, 'binding')} had been ended: messages go that way again"
        if self._settled:
            yield "acknowledgements, or attempts, of messages in queues: such messages are delivered again"


@dataclass(slots=True)
class LostRecords:
    """Gathers what the readable records behind the cut would have done."""

    names: Names
    _messages: dict[int, tuple[int, int]] = field(default_factory=dict)
    _xids: dict[TransactionNumber, Xid] = field(default_factory=dict)
    _transactions: dict[TransactionNumber, str] = field(default_factory=dict)
    _starts: dict[int, int] = field(default_factory=dict)
    _others: list[str] = field(default_factory=list)
    _groups: set[str] = field(default_factory=set)
    _settled: set[str] = field(default_factory=set)
    """The groups that settled single offsets."""
    _streams: set[bytes] = field(default_factory=set)
    _access: LostAccess = field(default_factory=LostAccess)
    _schedule: LostSchedule = field(default_factory=LostSchedule)
    _queues: LostQueues = field(init=False)
    _uncounted: int = 0

    def __post_init__(self) -> None:
        self._queues = LostQueues(self.names)

    def follow(self, entry: JournalEntry) -> None:
        """Take in a record that is lost."""
        effect = effect_of(entry)
        for placed in effect.placements:
            self._place(placed.partition, placed.base_offset, placed.count)
        if effect.number is not None:
            self._step(effect.number, effect)
        self._access.follow(entry.record)
        self._schedule.follow(entry.record)
        self._queues.follow(entry.record)
        match entry.record:
            case TopicCreated() as made if made.queue is None:
                self.names.add(made)
                self._others.append(
                    f"the creation of topic {made.topic!r} ({count_text(made.partitions, 'partition')})"
                )
            case TopicDeleted() as gone if not gone.topic.startswith(QUEUE_TOPIC_PREFIX):
                self._others.append(f"the deletion of topic {gone.topic!r}: it is there again")
            case TopicAltered() as altered:
                self.names.logs.add(altered)
                self._others.append(_alteration(altered))
            case GroupAltered() as altered:
                self._others.append(
                    f"the change of the settings of group {altered.group!r}: it has those from before"
                )
            case StreamClaimed() | StreamReleased() as said:
                self._streams.add(said.stream)
            case TransactionCommitted() as committed if (delivered := committed.delivered) is not None:
                self._streams.add(delivered.stream)
            case LogStartMoved() as moved:
                self._starts[moved.partition] = moved.start_offset
            case OffsetsCommitted() as moved:
                self._move(GroupPositions(moved.group, moved.id, moved.offsets, moved.settled))
            case PartitionsClaimed() as claimed:
                self._move(GroupPositions(claimed.group, claimed.id, [], claimed.settled))

    def _step(self, number: TransactionNumber, effect: Effect) -> None:
        ends = effect.prepares or effect.decision is not None
        if effect.xid is not None and (ends or len(self._xids) < MOST_NAMED):
            self._xids[number] = effect.xid
        if effect.prepares:
            self._end(number, "its prepare")
        if effect.outcome is State.COMMITTED:
            self._end(number, "its commit")
            for each in effect.positions:
                self._move(each)
        elif effect.outcome is State.ROLLED_BACK:
            self._end(number, "its rollback")

    def _move(self, positions: GroupPositions) -> None:
        if self._queues.settle(positions):
            return
        if positions.offsets:
            self._groups.add(positions.group)
        if positions.settled:
            self._settled.add(positions.group)

    def _place(self, partition: int, base: int, count: int) -> None:
        first, end = self._messages.get(partition, (base, base))
        self._messages[partition] = (min(first, base), max(end, base + count))

    def _end(self, number: TransactionNumber, what: str) -> None:
        if number in self._transactions or len(self._transactions) < MOST_NAMED:
            self._transactions[number] = what
        else:
            self._uncounted += 1

    def told(self) -> list[Loss]:
        """Return all losses, each once."""
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
        losses += [self._start(partition, offset) for partition, offset in sorted(self._starts.items())]
        losses += [Loss(f"positions of group {group!r}", Affected()) for group in sorted(self._groups)]
        settled = "finished offsets, or attempts, of group"
        losses += [Loss(f"{settled} {group!r}", Affected()) for group in sorted(self._settled)]
        losses += [Loss(text, Affected()) for text in self._schedule.told()]
        losses += [Loss(text, Affected()) for text in self._queues.told()]
        if self._streams:
            streams = count_text(len(self._streams), "stream")
            text = f"claims, deliveries or releases of {streams} of outboxes: rows that are there are delivered again"
            losses.append(Loss(text, Affected()))
        losses += [Loss(text, Affected()) for text in self._access.told()]
        return losses

    def maybe_prepared(self) -> list[Loss]:
        """Return transactions that an unreadable record may have prepared; that start rolls them back."""
        found: list[Loss] = []
        for number, (prepared, xid) in self.names.undecided.found.items():
            if not prepared and number not in self._transactions and len(found) < MOST_NAMED:
                named = f"transaction {number}" + (f" (xid {xid})" if xid is not None else "")
                text = f"{named}: its prepare, if what cannot be read held one; it is rolled back"
                found.append(Loss(text, Affected(transaction=number, xid=xid)))
        return found

    def _without_xid(self) -> list[Loss]:
        """Return one line for each session: only its client knew these transactions, by serial numbers."""
        sessions: dict[int, list[int]] = {}
        for number in self._transactions:
            if number not in self._xids:
                sessions.setdefault(number.session, []).append(number.serial)
        return [Loss(_ends(session, serials), Affected()) for session, serials in sessions.items()]

    def _partitions(self) -> Iterator[Loss]:
        """Yield what lies behind the kept end of each partition; nothing for partitions whose segments have it all."""
        for partition, (_, end) in sorted(self._messages.items()):
            first = self.names.logs.ends.get(partition, 0)
            if first < end:
                yield self._partition(partition, first, end - 1)

    def _start(self, partition: int, offset: int) -> Loss:
        topic, index = self.names.logs.names.get(partition, (f"partition number {partition}", 0))
        text = (
            f"{self.names.of(topic, index)}: its start at offset {offset}; messages below may be there again"
        )
        return Loss(text, Affected(topic, index))

    def _partition(self, partition: int, first: int, last: int) -> Loss:
        topic, index = self.names.logs.names.get(partition, (f"partition number {partition}", 0))
        return _messages(topic, index, first, last, self.names.of(topic, index))


def _alteration(altered: TopicAltered) -> str:
    if altered.added is None:
        return f"the change of the settings of topic {altered.topic!r}: it has those from before"
    more = count_text(altered.added.partitions, "partition")
    return (
        f"the addition of {more} to topic {altered.topic!r}, from {altered.topic}-{altered.added.first_index} on: it "
        "has the partitions and settings from before"
    )


def _ends(session: int, serials: list[int]) -> str:
    if len(serials) == 1:
        return f"the end of a transaction without an xid, {session}-{serials[0]}"
    between = f"{session}-{min(serials)} to {session}-{max(serials)}"
    return f"the ends of {len(serials):,} transactions without an xid, {between}"


def lost_offsets(store: StoreState, ranges: list[tuple[int, int]]) -> list[Loss]:
    """Return the losses of segments' messages that no file holds any more; offsets inclusive."""
    return [_messages(store.topic, store.index, first, last) for first, last in ranges]


def unproven_offsets(
    store: StoreState, unproven: list[tuple[int, int]], lost: list[tuple[int, int]], accepted: bool
) -> list[Loss]:
    """Return the messages of damaged segments that only their own checksums vouch for; offsets inclusive.

    They are reported if they were ``accepted``, or are in the ``lost`` ranges; not where the journal had them.
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


def _messages(topic: str, index: int, first: int, last: int, named: str = "") -> Loss:
    what = f"{span('offset', first, last)} ({count_text(last - first + 1, 'message')})"
    return Loss(f"{named or f'{topic}-{index}'}: {what}", Affected(topic, index, first, last))


def lost_lsns(first: int, last: int | None) -> Loss:
    """Return the loss of records that cannot be read; what they did is not known."""
    if last is None:
        text = f"records from LSN {first} on, if there were any: none is left"
    else:
        text = f"the records of {span('LSN', first, last)}: that part of the journal cannot be read"
    return Loss(text, Affected(first_lsn=first, last_lsn=last))


def later_lsns(first: int) -> Loss:
    """Return the loss of records after the journal's moment: it was set back, as a log shows that was not.

    Other logs may have been set back with the journal.
    """
    text = (
        f"the records after the moment of this journal, from LSN {first} on: their messages, positions and decisions "
        "may be missing, also where no log shows it"
    )
    return Loss(text, Affected(first_lsn=first))


def lost_access() -> Loss:
    """Return the loss of what was last said of users, rules and the switch, if what is lost said something of them."""
    text = (
        "users, rules and whether everybody has to log in may be older than they were: nobody is let in but over "
        "admin.sock until 'txbroker access confirm'"
    )
    return Loss(text, Affected())


def unproven_messages(affects: Affected) -> Loss:
    """Return the loss of sound messages that the journal does not have, because it is of an earlier moment."""
    text = f"{affects}: sound messages that are not in the journal; new messages get these offsets"
    return Loss(text, affects)
