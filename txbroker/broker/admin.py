"""Requests of people and tools: topics (also to make, alter, purge and delete), transactions, the broker's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from journal.errors import reserved
from journal.formats.envelope import SCHEDULE_TOPIC
from journal.formats.filenames import is_internal
from journal.log.catalog import Topic
from journal.parties import parts_of, parts_of_actor
from journal.records.access_entries import Resource, Right
from journal.records.outcome import Outcome
from journal.records.record import LogStartMoved, TopicAltered, TopicCreated, TopicDeleted
from journal.transaction_states import State, TransactionNumber
from journal.transactions import listing
from journal.transactions.listing import Wanted
from journal.transactions.state import Transaction
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise
from txbroker.broker.sends.sends import disk_full
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.rights import described
from txbroker.broker.sessions.session import Session, unheard
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.broker.sessions.things import partition_of
from txbroker.broker.slow_forces import SlowForces
from txbroker.errors import (
    CorruptData,
    InvalidSetting,
    LimitExceeded,
    OffsetOutOfRange,
    ScheduledForTopic,
    StorageUnavailable,
    TransactionConflict,
    UnknownTopic,
    UnknownTransaction,
)
from txbroker.wire.codec import ArrayPieces, encode
from txbroker.wire.messages import (
    MAX_HEAD,
    MAX_PURGED,
    AlterTopic,
    AskStatus,
    CoordinatorWord,
    CreateTopic,
    DeleteTopic,
    DescribeTopics,
    Done,
    ListTransactions,
    PartitionInfo,
    Policy,
    Purge,
    Request,
    ShowTransaction,
    Status,
    TopicInfo,
    Topics,
    TransactionInfo,
    Transactions,
    TransactionShown,
)
from txbroker.wire.refusals import check_entries, check_id, encode_bounded, unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

MAX_LISTED = 1000

IN_A_STEP: Final = 256
"""How many partitions are described in one step: 0.3 ms."""

NumberOf = Callable[[Session, ShowTransaction], TransactionNumber]
PolicyOf = Callable[[Transaction, int], Policy | None]


class Describing:
    """The meaning of these commands. ``on_changed`` is called with partitions that are deleted or purged, ``on_topic``
    with the name of a topic that was made or deleted, or has more partitions. ``bound_for`` says how many messages are
    scheduled for some partitions, None if that is not known.
    """

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        number_of: NumberOf,
        policy: PolicyOf,
        answers: Accounts,
        stepwise: Stepwise,
    ) -> None:
        self._engine = engine
        self._answers = answers
        self._stepwise = stepwise
        self._settings = settings
        self._catalog = engine.catalog
        self._stores = engine.catalog.stores
        self._number_of = number_of
        self._policy = policy
        self.slow_forces = SlowForces(engine)
        self.on_changed: Callable[[list[int]], object] = len
        self.on_topic: Callable[[str], object] = len
        self.bound_for: Callable[[set[int]], int | None] = lambda _: 0
        self.judge_topic: Callable[[Session], None] = unheard
        """Raises LimitExceeded if the session's principal may make no topic more."""
        self.status: Callable[[], dict[str, int | float | str]] = dict
        self.handlers: dict[type[Request], Any] = {
            DescribeTopics: self.describe_topics,
            CreateTopic: self.create_topic,
            DeleteTopic: self.delete_topic,
            AlterTopic: self.alter_topic,
            Purge: self.purge,
            ListTransactions: self.list_transactions,
            ShowTransaction: self.show_transaction,
            AskStatus: self.ask_status,
        }
        """The commands, each with its meaning."""

    # -- topics -----------------------------------------------------------------------------------

    def create_topic(self, session: Session, command: CreateTopic, data: memoryview) -> Topics:  # noqa: ARG002
        """Make a topic within the broker's limits."""
        engine = self._engine
        record = self._catalog.judge_creation(
            command.name, command.partitions, command.settings, engine.now(), command.id, session.as_actor()
        )
        check_id("topic", command.name, command.id)
        self._check_topics(command.name)
        self.judge_topic(session)
        self._check_partitions(command.name, command.partitions)
        self._check_frames(record)
        if engine.full:
            raise disk_full()
        engine.accept(record)
        self.on_topic(command.name)
        return Topics(command.correlation, [_topic_info(self._catalog.topics[command.name])])

    def alter_topic(self, session: Session, command: AlterTopic, data: memoryview) -> Topics:  # noqa: ARG002
        """Change some settings of a topic, and give it more partitions; both are one record.

        A full disk takes no new partitions. It takes settings, with which space can be got back.
        """
        topic, engine = self._meant(command), self._engine
        if not command.changes and not command.partitions:
            raise InvalidSetting(
                f"no setting of topic {topic.name!r} and no number of partitions to change; nothing has changed"
            )
        by = session.as_actor()
        record = self._catalog.judge_alteration(topic, command.changes, engine.now(), command.partitions, by)
        if "max_message_bytes" in command.changes:
            self._check_frames(record)
        if record.added is not None:
            self._check_partitions(topic.name, command.partitions)
            if engine.full:
                raise disk_full()
        if record.added is not None or record.settings != topic.settings:
            engine.accept(record)
            engine.housekeeping.settings_changed(topic.partitions)
        if record.added is not None:
            self.on_topic(topic.name)
        return Topics(command.correlation, [_topic_info(topic)])

    def _meant(self, command: AlterTopic | DeleteTopic) -> Topic:
        """Return the topic that a request names by name and id."""
        topic = self._catalog.topic(command.name)
        if is_internal(topic.name):
            raise reserved(topic.name)
        if topic.id != command.id:
            raise UnknownTopic(
                f"the topic {command.name!r} that was meant has been deleted; the one that is there now was "
                "made since. Nothing was changed. Ask for the topics again"
            )
        return topic

    def _check_frames(self, record: TopicCreated | TopicAltered) -> None:
        """Raise if a topic would take larger frames than the broker."""
        largest, most = record.settings.max_message_bytes, self._settings.max_frame
        if largest is not None and largest > most:
            raise InvalidSetting(
                f"max_message_bytes of topic {record.topic!r} is {largest}, the broker takes frames of at "
                f"most {most} (max_frame); nothing has changed"
            )

    def _check_topics(self, name: str) -> None:
        topics, limit = sum(not is_internal(name) for name in self._catalog.topics), self._settings.max_topics
        if topics >= limit:
            raise LimitExceeded(
                f"there are {topics} topics, the limit is {limit} (max_topics); {name!r} was not "
                "made. Delete one"
            )

    def _check_partitions(self, name: str, partitions: int) -> None:
        most = self._settings.max_topic_partitions
        if partitions > most:
            raise LimitExceeded(
                f"{partitions} partitions for topic {name!r}, the limit is {most} "
                "(max_topic_partitions); nothing was changed. Take fewer"
            )

    def delete_topic(self, session: Session, command: DeleteTopic, data: memoryview) -> Done:  # noqa: ARG002
        """Delete a topic that no undecided transaction has messages for."""
        topic = self._meant(command)
        numbers = [store.number for store in topic.partitions]
        for number in numbers:
            holder = self._engine.transactions.holds_partition(number)
            if holder is not None:
                raise TransactionConflict(
                    f"topic {command.name!r} cannot be deleted: transaction {holder} is undecided and holds "
                    "messages for it; nothing has changed. Commit it or roll it back first"
                )
        if not command.scheduled:
            self._check_scheduled(command.name, numbers)
        self._engine.accept(TopicDeleted(command.name, self._engine.now(), session.as_actor()))
        self.on_changed(numbers)
        self.on_topic(command.name)
        return Done(command.correlation)

    def _check_scheduled(self, name: str, numbers: list[int]) -> None:
        """Raise if messages are scheduled for a topic, or may be by a transaction that is undecided."""
        engine = self._engine
        waiting = self.bound_for(set(numbers))
        if waiting is None:
            raise StorageUnavailable(
                f"whether messages are scheduled for topic {name!r} is not known yet: much of the schedule is new, or "
                "something there cannot be read (see the broker's log); nothing has changed. Try again, or delete the "
                "topic with them ('txbroker topics delete --scheduled')"
            )
        if waiting:
            raise ScheduledForTopic(
                f"topic {name!r} cannot be deleted: {waiting:,} messages are scheduled for it; nothing has changed. "
                f"List them ('txbroker scheduled list --topic {name}'), take them back, or delete the topic with them "
                "('txbroker topics delete --scheduled')"
            )
        logs = self._catalog.topics.get(SCHEDULE_TOPIC)
        for store in [] if logs is None else logs.partitions:
            holder = engine.transactions.holds_partition(store.number)
            if holder is not None:
                raise TransactionConflict(
                    f"topic {name!r} cannot be deleted: transaction {holder} is undecided and schedules messages, "
                    "perhaps for it; nothing has changed. Commit it or roll it back first, or delete the topic with "
                    "what is scheduled for it ('txbroker topics delete --scheduled')"
                )

    def purge(self, session: Session, command: Purge, data: memoryview) -> Done:  # noqa: ARG002
        """Move the starts of logs to offsets; their segments are removed as after retention."""
        if len(command.starts) > MAX_PURGED:
            raise LimitExceeded(
                f"{len(command.starts)} partitions in one purge, the limit is {MAX_PURGED}; nothing has changed. "
                "Purge them in several requests"
            )
        for number, offset in command.starts:
            store = self._stores.get(number)
            if store is None:
                raise unknown_partition(number)
            if store.internal:
                raise reserved(store.topic)
            if not 0 <= offset <= store.high_watermark:
                raise OffsetOutOfRange(
                    f"{store.topic}-{store.index} cannot be purged up to offset {offset}: its messages end at "
                    f"{store.high_watermark}; nothing has changed",
                    store.start_offset,
                    store.high_watermark,
                )
        for number, offset in command.starts:
            if offset > self._stores[number].start_offset:
                self._engine.accept(LogStartMoved(number, offset, self._engine.now(), session.as_actor()))
        self.on_changed([number for number, _ in command.starts])
        return Done(command.correlation)

    def describe_topics(self, session: Session, command: DescribeTopics, data: memoryview) -> None:  # noqa: ARG002
        """Describe all topics or some; the broker's own topics only if they are named."""
        topics = self._catalog.topics
        if command.names is None:
            shown = described(Resource.TOPIC, topics, session.rights)
            names = {name for name in shown if not is_internal(name)}
        else:
            check_entries("names", len(command.names))
            names = topics.keys() & set(command.names)
        is_filtered = command.names is None and session.rights is not None
        steps = _topics(command.correlation, [topics[name] for name in sorted(names)], is_filtered)
        self._stepwise.answer(session, command, steps)

    # -- transactions -----------------------------------------------------------------------------

    def list_transactions(
        self,
        session: Session,
        command: ListTransactions,
        data: memoryview,  # noqa: ARG002
    ) -> Transactions:
        """Return a page of transactions; a shorter one if it would not fit into an answer."""
        limit = max(1, min(command.limit, MAX_LISTED))
        principal = session.principal if command.own else None
        wanted = Wanted(command.states, command.format_id, command.global_prefix, command.forced, principal)
        found, more = listing.page(self._engine.transactions.table, wanted, command.after, limit)
        infos = [self._info(each) for each in found]
        size = 0
        for place, info in enumerate(infos):
            size += len(_encode(info))
            if size > MAX_HEAD // 2 and place:
                return Transactions(command.correlation, infos[:place], True)
        return Transactions(command.correlation, infos, more)

    def show_transaction(self, session: Session, command: ShowTransaction, data: memoryview) -> None:  # noqa: ARG002
        """Return an undecided transaction with its first frames, or how it ended."""
        number = self._number_of(session, command)
        transactions = self._engine.transactions
        known = transactions.live.get(number)
        if known is None:
            ended = transactions.outcomes.find(number)
            if ended is None:
                raise UnknownTransaction(
                    f"transaction {number} is neither undecided nor remembered here; nothing was changed. It was never "
                    "begun, was rolled back with its session, or ended and was forgotten"
                )
            placements = ended.placements[:MAX_LISTED]
            answer = TransactionShown(command.correlation, self._info(ended), [], placements=placements)
            self._answers.put(session, encode(answer))
            return
        parts, obstacle = self._preview(number, command.max_bytes)
        parts, obstacle = self._readable(session, parts, obstacle)
        shown = TransactionShown(
            command.correlation,
            self._info(known),
            [(partition, len(frames)) for partition, frames in parts],
            known.offsets[:MAX_LISTED],
            [(number, *amounts) for number, amounts in islice(known.staged.parts.items(), MAX_LISTED)],
            obstacle=obstacle,
        )
        self._answers.put(session, encode(shown, b"".join(frames for _, frames in parts)))

    def _preview(self, number: TransactionNumber, max_bytes: int) -> tuple[list[tuple[int, bytes]], str]:
        """Return the first frames, or why they cannot be read: damage must not hide the rest."""
        limit = max(0, min(max_bytes, self._settings.max_preview))
        parts, size = [], 0
        try:
            for partition, frames in self._engine.transactions.table.preview(
                number, limit, self._engine.forced_lsn
            ):
                size += len(frames)
                if size > self._settings.max_request:
                    break
                parts.append((partition, frames))
        except CorruptData as error:
            return [], str(error)
        return parts, ""

    def _readable(
        self, session: Session, parts: list[tuple[int, bytes]], obstacle: str
    ) -> tuple[list[tuple[int, bytes]], str]:
        """Leave out the frames for topics that the session's principal may not read, and say so."""
        rights = session.rights
        if rights is None:
            return parts, obstacle
        allowed = [
            part for part in parts if rights.allows(Right.READ, Resource.TOPIC, partition_of(part[0], rights))
        ]
        left_out = (
            "" if len(allowed) == len(parts) else "messages of topics that you may not read are left out"
        )
        return allowed, obstacle or left_out

    def _info(self, each: Transaction | Outcome) -> TransactionInfo:
        now = self._engine.now()
        principal, owner, address = parts_of(each.owner)
        if isinstance(each, Outcome):
            told = each.told
            word = CoordinatorWord(told.decided, told.wall, *parts_of_actor(told.by)) if told else None
            by, by_principal = parts_of_actor(each.by)
            return TransactionInfo(
                *each.number, each.state, each.xid, owner, now - each.at, each.messages, each.bytes,
                self._topics({p.partition for p in each.placements}), [], each.cause, by, each.why,
                each.heuristic, word, address, None, each.began, each.prepared, each.wall, None, principal,
                by_principal,
            )  # fmt: skip
        prepared = each.state is State.PREPARED
        return TransactionInfo(
            *each.number, each.state, each.xid, owner, now - each.began, each.messages, each.bytes,
            self._topics(set(each.partitions)), sorted(each.groups)[:MAX_LISTED],
            address=address,
            prepared_age=now - each.prepared_at if prepared else None,
            began=each.began + each.wall_offset,
            prepared=each.prepared_at + each.wall_offset if prepared else 0,
            policy=self._policy(each, now),
            principal=principal,
            restored=prepared and self._engine.starts.is_restored(each.number.session),
        )  # fmt: skip

    def _topics(self, partitions: set[int]) -> list[str]:
        stores = self._stores
        return sorted({stores[number].topic for number in partitions if number in stores})[:MAX_LISTED]

    # -- the broker -------------------------------------------------------------------------------

    def ask_status(self, session: Session, command: AskStatus, data: memoryview) -> Status:  # noqa: ARG002
        """Return counters and gauges."""
        return Status(command.correlation, self.status())

    def gauges(self) -> dict[str, int | float | str]:
        """Return the engine's figures; the counts of transactions are those of this moment."""
        engine = self._engine
        live = engine.transactions.live
        pool = engine.allocator.usage()
        return {
            "start": engine.start_number,
            "topics": sum(not is_internal(name) for name in self._catalog.topics),
            "partitions": len(self._stores) - self._catalog.internal,
            "last_lsn": engine.last_lsn,
            "forced_lsn": engine.forced_lsn,
            "pending_bytes": engine.pending_bytes,
            "unflushed_bytes": sum(store.unflushed_bytes for store in engine.dirty),
            "pool_bytes_used": pool.used + pool.reserved,
            "pool_bytes_kept": pool.kept,
            "pool_bytes_fragmented": pool.fragmented,
            "pool_chunks": pool.chunks,
            "pool_buffers_lost": engine.allocator.lost,
            "checkpoint_lsn": engine.housekeeping.checkpoint_lsn,
            "pins": engine.housekeeping.pins,
            "segments_compacted": engine.housekeeping.compactor.compacted,
            "bytes_compacted": engine.housekeeping.compactor.freed_bytes,
            "transactions_active": len(live) - len(engine.transactions.prepared),
            "transactions_in_doubt": len(engine.transactions.prepared),
            "transactions_restored": engine.starts.count_restored(
                n.session for n in engine.transactions.prepared
            ),
            "restored_as_copy": int(engine.starts.as_copy),
            "outcomes_forced": len(engine.transactions.outcomes.heuristic),
            "outcomes_contradicted": len(engine.transactions.outcomes.contradicted),
            "disk_full": int(engine.full),
            "disk_bytes_free": engine.housekeeping.free_bytes,
            "disk_bytes_needed": engine.housekeeping.reserve_bytes,
            **self.slow_forces.gauges(),
        }


_encode = msgspec.msgpack.Encoder().encode


def _topics(correlation: int, topics: Sequence[Topic], is_filtered: bool) -> Steps:
    """Describe topics: the ends of their logs are of one moment, however many steps the rest takes."""
    ends = [[store.high_watermark for store in topic.partitions] for topic in topics]
    found = ArrayPieces()
    for topic, marks in zip(topics, ends, strict=True):
        parts = ArrayPieces()
        for first in range(0, len(marks), IN_A_STEP):
            some = zip(topic.partitions[first : first + IN_A_STEP], marks[first:], strict=False)
            parts.add([_partition_info(store, end) for store, end in some])
            yield None
        found.add([TopicInfo(topic.name, parts.joined(), topic.settings, topic.id)])
    return encode_bounded(Topics(correlation, found.joined(), is_filtered))


def _topic_info(topic: Topic) -> TopicInfo:
    parts = [_partition_info(store, store.high_watermark) for store in topic.partitions]
    return TopicInfo(topic.name, parts, topic.settings, topic.id)


def _partition_info(store: MessageStore, end: int) -> PartitionInfo:
    start = min(store.start_offset, end)
    return PartitionInfo(store.index, store.number, start, end, store.total_bytes, len(store.segments))


def nothing_scrubbed() -> dict[str, int]:
    """Return the scrubber's figures for a broker without a scrubber."""
    return {"scrubbed_bytes": 0, "scrub_passes": 0, "scrub_age": -1, "scrub_findings": 0}
