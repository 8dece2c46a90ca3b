"""The catalog of topics: the fold that maps names and numbers to logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace
from zope.interface import implementer

from journal.constants import MAX_PARTITIONS_PER_TOPIC
from journal.errors import (
    NEXT_STEP,
    CorruptJournal,
    InvalidSetting,
    LimitExceeded,
    MemoryExhausted,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    reserved,
)
from journal.formats.checkpoint import Checkpoint
from journal.formats.checkpoint_rows import Count, RowReader
from journal.formats.filenames import JOURNAL_DIRECTORY, check_topic_name, is_internal
from journal.formats.store_state import StoreState
from journal.interfaces import IBuffer, IRunFold
from journal.log.applied import Applied
from journal.log.message_run import MessageRun
from journal.log.message_store import MessageStore
from journal.log.shared_run import SharedRun
from journal.parties import Actor, Principal, parts_of_actor
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import (
    AnyRecord,
    ArchiveSet,
    Due,
    LogStartMoved,
    Messages,
    Partitions,
    PartitionsAdded,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    sends,
)
from journal.records.transient import first_number, is_transient
from journal.settings import TopicSettings, check_setting

PartitionRange = tuple[Count, Partitions]
"""The first of consecutive partition numbers, and how many there are."""


@dataclass(slots=True, eq=False)
class Topic:
    """A topic; ``partitions`` by index."""

    name: str
    settings: TopicSettings
    partitions: list[MessageStore]
    created: int
    id: bytes
    ranges: list[PartitionRange]
    """The numbers of its partitions: one range for its creation, and one for each time that it got more of them."""
    owner: str = ""
    """The principal that has made it; empty if nobody is known."""

    @property
    def is_transient(self) -> bool:
        """Whether it has the messages of a transient queue."""
        return is_transient(self.ranges[0][0])


class TopicRow(msgspec.Struct, array_like=True, frozen=True):
    """A topic in a checkpoint."""

    name: str
    settings: TopicSettings
    ranges: list[PartitionRange]
    created: int
    id: bytes
    owner: Principal = ""

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of its partitions, by index."""
        return [number for first, count in self.ranges for number in range(first, first + count)]


class HeadRow(msgspec.Struct, array_like=True, frozen=True):
    """The part of a checkpoint beside topics and stores."""

    next_partition: int
    wall_offset: int


MakeStore = Callable[[int, str, int, TopicSettings], MessageStore]
RestoreStore = Callable[[StoreState], MessageStore]


@implementer(IRunFold)
class Catalog:
    """Topics by name, stores by partition number. A number is never used again.

    ``make_room`` is called when memory runs out in replay, until there is enough or it returns that there is no more.
    """

    name = "catalog"
    handles = (Started, TopicCreated, TopicDeleted, TopicAltered, LogStartMoved, Messages, ArchiveSet, Due)

    def __init__(self, make_store: MakeStore, restore_store: RestoreStore) -> None:
        self._make_store = make_store
        self._restore_store = restore_store
        self.topics: dict[str, Topic] = {}
        self.stores: dict[int, MessageStore] = {}
        self.next_partition = 1
        self.next_transient = first_number(0)
        """The number of the next transient queue."""
        self.transient: set[str] = set()
        """The names of the transient queues that are there, from before the record that makes them."""
        self.internal = 0
        """Partitions of the engine's own topics."""
        self.wall_offset = 0
        """The wall clock at journal time 0, µs since 1970, as the newest start has found it."""
        self.max_partitions = 100_000
        self.start_moved_lsn = 0
        """The LSN of the newest record that moved the start of a log."""
        self.deleted: list[MessageStore] = []
        """Stores whose files are removed after the next checkpoints; the checkpoint takes them."""
        self.deleted_transient: list[MessageStore] = []
        """Stores of transient queues that housekeeping ends at once."""
        self.make_room: Callable[[], bool] = no_room

    # -- questions ---------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """Return the topic of that name; raises :class:`UnknownTopic`."""
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopic(f"there is no topic {name!r}; nothing was changed. Create it first") from None

    def store(self, number: int) -> MessageStore:
        """Return the partition with that number; raises :class:`UnknownPartition`."""
        try:
            return self.stores[number]
        except KeyError:
            raise UnknownPartition(
                f"there is no partition number {number}; nothing was changed. Its topic may have been deleted: ask "
                "for the topics again"
            ) from None

    def durable_stores(self) -> list[MessageStore]:
        """Return the logs of all partitions but those of transient queues."""
        stores = self.stores.values()
        return [each for each in stores if not each.is_transient] if self.transient else list(stores)

    # -- judging -----------------------------------------------------------------------------------

    def judge_creation(
        self,
        name: str,
        partitions: int,
        settings: TopicSettings,
        at: int,
        topic_id: bytes,
        by: Actor | None = None,
    ) -> TopicCreated:
        """Return the record that creates a topic; raises if that is not allowed."""
        check_topic_name(name)
        if is_internal(name):
            raise reserved(name)
        settings.check()
        if name in self.topics:
            raise TopicExists(f"topic {name!r} exists already; nothing was changed")
        if not 1 <= partitions <= MAX_PARTITIONS_PER_TOPIC:
            raise InvalidSetting(
                f"{partitions} partitions for topic {name!r}; 1 to {MAX_PARTITIONS_PER_TOPIC} are allowed. Nothing "
                "was changed"
            )
        self._judge_all(name, partitions, partitions)
        return TopicCreated(name, self.next_partition, partitions, settings, at, topic_id, by)

    def judge_alteration(
        self,
        topic: Topic,
        changes: Mapping[str, int | None],
        at: int,
        partitions: int = 0,
        by: Actor | None = None,
    ) -> TopicAltered:
        """Return the record that changes some settings of a topic, and gives it that many partitions in all.

        0 stands for those that it has. Raises :class:`InvalidSetting`, :class:`LimitExceeded`, InvalidName.
        """
        if is_internal(topic.name):
            raise reserved(topic.name)
        for name, value in changes.items():
            check_setting(name, value)
        added = self._judge_growth(topic, partitions) if partitions else None
        return TopicAltered(topic.name, replace(topic.settings, **changes), at, added, by)

    def _judge_growth(self, topic: Topic, partitions: int) -> PartitionsAdded | None:
        """Return what a topic lacks to that many partitions; None if nothing."""
        have = len(topic.partitions)
        if partitions < have:
            raise InvalidSetting(
                f"{partitions} partitions for topic {topic.name!r}, which has {have}: a topic gets more of them, "
                "never fewer. Nothing was changed"
            )
        if partitions > MAX_PARTITIONS_PER_TOPIC:
            raise InvalidSetting(
                f"{partitions} partitions for topic {topic.name!r}; {MAX_PARTITIONS_PER_TOPIC} are allowed. Nothing "
                "was changed"
            )
        if partitions == have:
            return None
        self._judge_all(topic.name, partitions, partitions - have)
        return PartitionsAdded(have, self.next_partition, partitions - have)

    def _judge_all(self, name: str, partitions: int, more: int) -> None:
        wanted = len(self.stores) - self.internal + more
        if wanted > self.max_partitions:
            raise LimitExceeded(
                f"topic {name!r} with {partitions} partitions would make {wanted} in all, the "
                f"limit is {self.max_partitions}; nothing was changed"
            )

    # -- the fold ----------------------------------------------------------------------------------

    def apply(self, lsn: int, record: AnyRecord, data: bytes | memoryview) -> Applied | None:
        """Apply one record to the state; return the logs that it has put messages into, if it is for the engine to show
        them.
        """
        match record:
            case Messages():
                self._replay(record, data)
            case Due():
                return Applied(None, [self._place_due(sent, frames) for sent, frames in sends(record, data)])
            case TopicCreated():
                self._create(record)
            case TopicDeleted():
                self._delete(self.topics.pop(record.topic))
            case LogStartMoved():
                self.stores[record.partition].move_start(record.start_offset)
                self.start_moved_lsn = lsn
            case TopicAltered():
                topic = self.topics[record.topic]
                if record.added is not None:
                    self._add(topic, record.added)
                self._alter(topic, record.settings)
            case ArchiveSet():
                self._alter(self.topics[OUTCOMES_TOPIC], record.settings)
            case Started():
                self.wall_offset = record.wall - record.at
                self.next_transient = first_number(record.start)
            case _:
                raise CorruptJournal(f"the catalog does not know {record!r} at LSN {lsn}", "", 0)
        return None

    def _create(self, record: TopicCreated) -> None:
        topic = Topic(record.topic, record.settings, [], record.at, record.id, [], owner_of(record))
        self._add(topic, record.added)
        self.topics[record.topic] = topic

    def _delete(self, topic: Topic) -> None:
        gone = self.deleted_transient if topic.is_transient else self.deleted
        for store in topic.partitions:
            del self.stores[store.number]
            self.internal -= store.internal
            gone.append(store)

    def _add(self, topic: Topic, added: PartitionsAdded) -> None:
        """Give a topic its first partitions, or more."""
        transient = is_transient(added.first_partition)
        following = (len(topic.partitions), self.next_transient if transient else self.next_partition)
        if (added.first_index, added.first_partition) != following:
            raise CorruptJournal(
                f"{topic.name}-{added.first_index} was given partition number {added.first_partition}, the next is "
                f"{topic.name}-{following[0]} with {following[1]}: a record is missing from the journal. No record "
                f"was changed. {NEXT_STEP}",
                JOURNAL_DIRECTORY,
            )
        stores = [
            self._make_store(number, topic.name, index, topic.settings)
            for index, number in enumerate(added.numbers, added.first_index)
        ]
        topic.partitions += stores
        topic.ranges.append((added.first_partition, added.partitions))
        self.stores.update((store.number, store) for store in stores)
        if transient:
            self.next_transient += added.partitions
        else:
            self.next_partition += added.partitions
        self.internal += sum(store.internal for store in stores)

    def _alter(self, topic: Topic, settings: TopicSettings) -> None:
        topic.settings = settings
        for store in topic.partitions:
            store.settings = settings

    def _replay(self, record: Messages, data: bytes | memoryview) -> None:
        store = self.stores[record.partition]
        self.place(store, data, record.base_offset, record.count, record.at)
        store.publish(store.end_offset)

    def _place_due(self, sent: Messages, frames: memoryview) -> MessageStore:
        store = self.stores[sent.partition]
        self.place(store, frames, sent.base_offset, sent.count, sent.at)
        return store

    def apply_run(self, run: MessageRun) -> None:
        """Append many sends to their log; see :class:`IRunFold`."""
        store = self.stores[run.partition]
        number = 0
        # A log that holds some of them already needs the slower way, which checks each.
        at_end = len(run.bases) > 1 and run.bases[0] == store.end_offset
        while number < len(run.bases):
            fitted = self._place_run(store, run, number) if at_end else 0
            if not fitted:
                self.place(
                    store, run.frames.run(number), run.bases[number], run.counts[number], run.times[number]
                )
            number += fitted or 1
            store.publish(store.end_offset)  # before more room is made: what is not published is not flushed

    def _place_run(self, store: MessageStore, run: MessageRun, number: int) -> int:
        try:
            return store.replay_run(run, number)
        except MemoryExhausted:
            return 0

    def place(
        self,
        store: MessageStore,
        data: bytes | memoryview,
        base: int,
        count: int,
        at: int,
        shared: SharedRun | None = None,
    ) -> None:
        """Append frames of a forced record to their log, unless they are there already; make room if necessary.

        ``shared`` is the same run, if it goes to several logs and is to be in memory once.
        """
        while True:
            try:
                store.replay(data, base, count, at, self.wall_offset, shared)
            except MemoryExhausted:
                if not self.make_room():
                    raise
            else:
                return

    def make_room_for(self, sizes: Mapping[int, int]) -> None:
        """Find memory in logs for appends of so many bytes, or keep none; raises ``MemoryExhausted``."""
        found: list[tuple[MessageStore, IBuffer]] = []
        try:
            for partition, size in sizes.items():
                store = self.stores[partition]
                if (buffer := store.room_for(size)) is not None:
                    found.append((store, buffer))
        except MemoryExhausted:
            for _, buffer in found:
                buffer.release()
            raise
        for store, buffer in found:
            store.add_room(buffer)

    def snapshot(self) -> Iterator[Any]:
        """Return the topics' rows. The checkpoint adds the stores' states after it has flushed them."""
        head = HeadRow(self.next_partition, self.wall_offset)
        rows = [
            TopicRow(t.name, t.settings, list(t.ranges), t.created, t.id, t.owner)
            for t in self.topics.values()
            if not t.is_transient
        ]
        return iter([head, *rows])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        rows.take(HeadRow)
        rows.rest(TopicRow)

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state. :meth:`restore_stores` must follow."""
        head, *self._topic_rows = rows
        self.next_partition, self.wall_offset = head.next_partition, head.wall_offset

    _topic_rows: list[TopicRow]

    def restore_stores(self, states: Iterable[StoreState]) -> None:
        """Make the stores from their checkpointed states and put them into their topics."""
        for state in states:
            self.stores[state.number] = self._restore_store(state)
        for row in self._topic_rows:
            partitions = [self.stores[number] for number in row.numbers]
            self.topics[row.name] = Topic(
                row.name, row.settings, partitions, row.created, row.id, list(row.ranges), row.owner
            )
            self.internal += sum(store.internal for store in partitions)


def owner_of(created: TopicCreated) -> str:
    """The principal that has made a topic; empty if nobody is known."""
    return parts_of_actor(created.by)[1]


def head_of_catalog(checkpoint: Checkpoint) -> HeadRow:
    """What a checkpoint says of partitions' numbers and of the clock."""
    head: HeadRow = checkpoint.folds.get("catalog", [HeadRow(1, 0)])[0]
    return head


def topic_rows(checkpoint: Checkpoint) -> list[TopicRow]:
    """The topics that a checkpoint has."""
    return checkpoint.folds.get("catalog", [])[1:]


def no_room() -> bool:
    """Return False: no room can be made outside recovery, where back-pressure keeps memory from running out."""
    return False
