"""The producer of a client: its number, its queues, the bound on unanswered bytes, the partitions of topics."""

from __future__ import annotations

import math
from functools import partial
from itertools import chain
from typing import cast

from journal.arguments import text, wrong_type
from journal.due_time import After, At
from journal.formats.compression import compressor
from journal.formats.envelope import SCHEDULE_TOPIC
from journal.formats.frame import HEADER_BYTES
from journal.message_headers import GivenHeaders
from journal.records.queue_entries import address_of
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.options import Backoff
from txbroker.client.core.partitioner import Partitioner, by_caller
from txbroker.client.core.phase import Phase
from txbroker.client.core.promise import Errand, settled
from txbroker.client.core.routes import Question
from txbroker.client.core.schedule_time import Due
from txbroker.client.core.waits import Turn
from txbroker.client.producer.batch import Batch
from txbroker.client.producer.exchange_queue import ExchangeQueue, exchange_of
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.producer.receipts import Appended
from txbroker.client.producer.reports import Reports
from txbroker.client.producer.route import Route
from txbroker.client.producer.schedule_queue import GivenMessage, ScheduleQueue, scheduled
from txbroker.wire.messages import (
    AskSchedule,
    DescribeTopics,
    Exchanges,
    ListExchanges,
    OpenProducer,
    ProducerOpened,
    ScheduleTold,
    TopicInfo,
    Topics,
)


class Producer:
    """The sends of one client. ``identity`` is (producer id, epoch); ``buffered`` counts unanswered bytes."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.compressor = compressor(core.options.compression, core.options.compression_level)
        self.identity = (0, 0)
        self.sequences: dict[int, int] = {}
        self.buffered = 0
        self.limit = core.options.max_buffered
        """If ``buffered`` is above this, a message has to wait for room; negative while others wait, which come
        first.
        """
        self.asynchronous = False
        self.backoff = Backoff(core.random)
        self.failed: list[Batch] = []
        self._queues: dict[str, list[PartitionQueue]] = {}
        """By topic."""
        self._ending: list[PartitionQueue] = []
        """Those of deleted topics, until all of their messages are answered."""
        self._routes: dict[str, Route] = {}
        self._questions: dict[str, Question[Route]] = {}
        self._opening: Errand | None = None
        self._room = core.waits.line(lambda: not self.full or core.fatal is not None)
        self.reports = Reports(core, self._report) if core.options.reports else None
        core.on_changed.append(self._changed)
        core.on_open.append(self._opened)
        core.on_lost.append(self._lost)
        core.on_tick.append(self._expire)

    # -- routes ------------------------------------------------------------------------------------

    def known_route(self, topic: str) -> Route | None:
        """Return the route if it is known already; raises WrongType for an impossible name of a topic."""
        try:
            return self._routes.get(topic)
        except TypeError:
            raise wrong_type("topic", topic, "a str") from None

    def forget_route(self, topic: str) -> None:
        """The topic may be gone, or made anew, or have more partitions, or another limit of messages now: the next send
        looks.
        """
        self._routes.pop(topic, None)
        self._questions.pop(topic, None)

    def _changed(self, topic: str, is_there: bool) -> None:
        """Note that this client has altered the topic, or deleted it."""
        if is_there:
            self.forget_route(topic)
        else:
            self.deleted(topic)

    def deleted(self, topic: str) -> None:
        """The topic is gone, or there is a new one of that name: the next send looks."""
        self.forget_route(topic)
        self._have(topic, [])

    def gone(self, queue: PartitionQueue) -> None:
        """The broker says that a queue's partition is gone, and so its topic is."""
        if queue in self._queues.get(queue.topic, []):  # else there may be a new one of that name already
            self.deleted(queue.topic)

    async def route(self, topic: str) -> Route:
        """Find a topic's partitions; raises UnknownTopic, WrongType, WrongValue."""
        topic = text("topic", topic)
        if found := self.known_route(topic):
            return found
        question = self._questions.get(topic)
        if question is None:
            question = Question(self.core.waits, partial(self._find, topic), partial(self._found, topic))
            self._questions[topic] = question
        return await question.answered()

    async def _find(self, topic: str) -> Route:
        core = self.core
        if topic == SCHEDULE_TOPIC:
            told = await core.request(AskSchedule(core.correlation()), ScheduleTold)
            return self._route_to_schedule(told.partitions)
        if (meant := exchange_of(topic)) is not None:
            return await self._route_to_exchange(topic, *meant)
        answer = await core.request(DescribeTopics(core.correlation(), [topic]), Topics)
        if not answer.topics:
            self.deleted(topic)
            raise errors.UnknownTopic(f"there is no topic {topic!r}; nothing was sent. Create it first")
        return self._route(answer.topics[0])

    def _found(self, topic: str, question: Question[Route]) -> None:
        """Keep a route: all callers that waited for it have it."""
        if self._questions.get(topic) is question:
            if question.answer is not None:
                self._routes[topic] = question.answer
            del self._questions[topic]

    def _route(self, info: TopicInfo) -> Route:
        largest = info.settings.max_message_bytes or self.core.max_frame
        allowed = min(largest, self.core.max_frame, self.core.max_request)
        most = allowed - HEADER_BYTES  # the wrapper has a header of its own
        known = {queue.number: queue for queue in self._queues.get(info.name, [])}
        queues = [
            known.get(part.number) or PartitionQueue(self, info.name, part.index, part.number)
            for part in info.partitions
        ]
        for queue in queues:
            queue.bound(most)
            queue.partitions = len(queues)
        self._have(info.name, queues)
        is_own = self.reports is not None and info.name == self.reports.topic  # of reports: by key, always
        partitioner = None if is_own or self.core.options.partitioner is None else self._ask
        return Route(info.name, queues, partitioner, self.forget_route)

    def _route_to_schedule(self, numbers: list[int]) -> Route:
        known = {queue.number: queue for queue in self._queues.get(SCHEDULE_TOPIC, [])}
        queues = [
            known.get(number) or ScheduleQueue(self, index, number) for index, number in enumerate(numbers)
        ]
        for queue in queues:
            queue.bound(min(self.core.max_frame, self.core.max_request))
            queue.partitions = len(queues)
        self._have(SCHEDULE_TOPIC, queues)
        return Route(SCHEDULE_TOPIC, queues, None, self.forget_route)

    async def _route_to_exchange(self, target: str, exchange: str, mandatory: bool) -> Route:
        core = self.core
        try:
            told = await core.request(ListExchanges(core.correlation(), [exchange]), Exchanges)
        except errors.UnknownExchange:
            self.deleted(target)
            raise
        address = address_of(told.exchanges[0].number, mandatory)
        known = {queue.number: queue for queue in self._queues.get(target, [])}
        queue = known.get(address) or ExchangeQueue(self, target, address, mandatory)
        queue.bound(min(core.max_frame, core.max_request))
        self._have(target, [queue])
        return Route(target, [queue], None, self.forget_route)

    def _have(self, topic: str, queues: list[PartitionQueue]) -> None:
        """A topic has these queues. Others are of a topic of that name that is deleted: they take no more messages."""
        kept = {queue.number for queue in queues}
        gone = [queue for queue in self._queues.get(topic, []) if queue.number not in kept]
        for queue in gone:
            queue.broken = queue.broken or errors.UnknownPartition(
                f"the topic {topic!r} that had partition number {queue.number} has been deleted; nothing was sent. If "
                "there is another one of that name, the next send finds it"
            )
        self._ending += gone
        self._queues[topic] = queues
        if not queues:
            del self._queues[topic]

    def _all_queues(self) -> list[PartitionQueue]:
        self._ending = [queue for queue in self._ending if queue.batches()]
        return list(dict.fromkeys([*self._ending, *chain.from_iterable(self._queues.values())]))

    def _ask(self, topic: str, key: bytes | None, partitions: int) -> int | None:
        """Call the user's partitioner."""
        core = self.core
        core.asking = core.thread()
        try:
            return by_caller(cast(Partitioner, core.options.partitioner), topic, key, partitions)
        finally:
            core.asking = 0

    # -- for queues ---------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Return whether batches may be sent now; if not, start what is needed for it."""
        if self.core.phase is not Phase.OPEN:
            return False
        if self.identity[0]:
            return True
        if self._opening is None or self._opening.done:
            self._opening = Errand(self._open())
        else:
            self._opening.wake()
        return bool(self.identity[0])

    async def _open(self) -> None:
        core = self.core
        try:
            opened = await core.request(
                OpenProducer(core.correlation(), core.options.producer), ProducerOpened
            )
        except errors.TxBrokerError as error:
            self._opening = None
            self._stop(error)
            return
        self._opening = None
        self.identity = (opened.producer_id, opened.epoch)
        self.sequences = dict(opened.sequences)
        self._flush_queues()

    def expired(self, identity: tuple[int, int]) -> None:
        """Note that the broker has forgotten this producer: the next batch opens a new one."""
        if self.identity == identity:
            self.identity = (0, 0)
            self.sequences = {}

    def new_batch(self, queue: PartitionQueue) -> Batch:
        """Return a batch for a queue, with its timeout running."""
        core = self.core
        core.check_open()
        batch = queue.batch(core.clock() + core.options.timeout)
        core.expire_by(batch.deadline)
        return batch

    def check_size(self, batch: Batch) -> None:
        """Raise MessageTooLarge for a batch that the broker would refuse."""
        limit = min(self.core.max_frame, self.core.max_request)
        size = batch.alone_size
        if size > limit:
            raise errors.MessageTooLarge(
                f"the message takes {size} bytes, the limit is {limit}; nothing was sent"
            )

    def freed(self, batch: Batch) -> None:
        """Release the room of a batch."""
        self.buffered -= batch.size
        batch.frames = batch.data = b""
        if batch.error is not None and batch.watched:
            self.failed.append(batch)
        elif batch.error is None:
            self.backoff.reset()
        if self.limit < 0 and not self.full:
            self._room.move_soon()

    def leave(self, batch: Batch) -> None:
        """Note that no caller waits for a batch: a flush reports a failure."""
        batch.watched = self.asynchronous = True
        if batch.error is not None and batch not in self.failed:
            self.failed.append(batch)

    def unsent(self) -> errors.TxBrokerError:
        """Return the error for a caller whose message was not sent in time."""
        is_open = self.core.phase is Phase.OPEN
        reason = "the broker has not answered what came before them" if is_open else self.core.reason
        return errors.ConnectionUnavailable(
            f"the messages could not be sent within {self.core.options.timeout} s ({reason}); "
            "they were not sent and will not be"
        )

    def mend(self) -> None:
        """Repair what an interrupt left half done. Messages that were accepted stay accepted.

        Their caller may not have come to wait for them: a flush reports all of them.
        """
        self.core.mend()
        for question in list(self._questions.values()):
            question.mend()
        for queue in self._all_queues():
            queue.mend()
        unanswered = [batch for queue in self._all_queues() for batch in queue.batches()]
        self.buffered = sum(batch.size for batch in unanswered)
        for batch in unanswered:
            self.leave(batch)
        self._room.mend()
        self._bound()
        if not self.full:
            self._room.move_soon()

    # -- for callers -------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether senders have to wait."""
        return self.buffered > self.core.options.max_buffered

    def check_room(self) -> None:
        """Raise BufferFull if the client is full and the user chose not to wait."""
        if self.full and self.core.options.when_full == "raise":
            raise self.no_room()

    def no_room(self) -> errors.BufferFull:
        """Return the error for a message that found no room."""
        return errors.BufferFull(
            f"{self.buffered} bytes are unanswered, the client's bound is {self.core.options.max_buffered}; "
            "this message was not taken"
        )

    async def logs(self) -> Route:
        """Return the route to the logs of the schedule."""
        return self._routes.get(SCHEDULE_TOPIC) or await self.route(SCHEDULE_TOPIC)

    async def append(
        self,
        topic: str,
        value: bytes | None,
        timestamp: int,
        key: bytes | None,
        headers: GivenHeaders | None,
        partition: int | None,
        watched: bool,
        due: Due | None = None,
    ) -> Appended:
        """Add a message once there is room, behind those that came before; return where it is.

        ``watched``: a flush reports it, too. Raises BufferFull if there is no room for ``timeout`` seconds, or at once
        if the user chose so; the message is not accepted then. If the caller gives up while it waits here, the message
        is not sent.
        """
        route = self.known_route(topic) or await self.route(topic)
        message = (value, timestamp, key, headers)
        logs = None
        if due is not None:
            logs = await self.logs()
        if self.buffered <= self.limit:
            return self._append(route, partition, message, watched, due, logs)
        self.check_room()
        turn = self._room.turn()
        try:
            self.join_room(turn, self.core.clock() + self.core.options.timeout)
            has_room = await turn
            self.core.check_open()
            if not has_room:
                raise self.no_room()
            return self._append(route, partition, message, watched, due, logs)
        finally:
            self.leave_room(turn)

    async def append_later(
        self,
        topic: str,
        message: GivenMessage,
        partition: int | None,
        watched: bool,
        after: After | None,
        at: At | None,
    ) -> Appended:
        """Add a message that is due ``after`` a time from this call on, or ``at`` one; else as :meth:`append`."""
        due = await self.core.schedule_time.due(after, at)
        value, timestamp, key, headers = message
        return await self.append(topic, value, timestamp, key, headers, partition, watched, due)

    def room(self) -> Turn:
        """Return a place in the line for room."""
        return self._room.turn()

    def join_room(self, turn: Turn, deadline: float = math.inf) -> None:
        """Get in line for room, until ``deadline``. Lingering messages are sent, because this caller waits for them."""
        self._flush_queues()
        self.limit = -1
        turn.join(deadline)

    def leave_room(self, turn: Turn) -> None:
        """Leave the line; must be called for every :meth:`join_room`, whatever happened."""
        turn.leave()
        self._bound()

    def _bound(self) -> None:
        self.limit = self.core.options.max_buffered if self._room.is_free else -1

    def _append(
        self,
        route: Route,
        partition: int | None,
        message: GivenMessage,
        watched: bool,
        due: Due | None,
        logs: Route | None,
    ) -> Appended:
        value, timestamp, key, headers = message
        queue = target = route.choose(key, partition)
        if due is not None and logs is not None:
            queue, (value, timestamp, key, headers) = scheduled(logs, target, due, message)
        batch, position = queue.append(value, timestamp, key, headers)
        if watched:
            batch.watched = self.asynchronous = True
        return Appended(queue, batch, position, target)

    async def flush(self, batches: list[Batch] | None = None) -> None:
        """Send everything and wait for all answers; raise the first failure since the last flush.

        ``batches`` gets those that it waits for: a caller that is interrupted before it learns their end has them kept.
        """
        batches = [] if batches is None else batches
        has_ended = False
        try:
            batches += [batch for batch in self.failed if batch.watched]
            self.failed = []
            for queue in self._all_queues():
                queue.flush()
                batches += [batch for batch in queue.batches() if batch.watched]
            for batch in batches:
                batch.watched = batch.untold = False  # this flush reports it
            for batch in batches:
                await settled(batch)
            has_ended = True
        finally:
            if not has_ended:
                self.keep(batches)
        failed = [batch for batch in batches if batch.error is not None]
        if failed:
            error = cast(BaseException, failed[0].error)
            count = sum(batch.count for batch in failed)
            error.add_note(f"{count} messages failed since the last flush; each one's future says how")
            raise error

    def keep(self, batches: list[Batch]) -> None:
        """Keep the batches of a flush that was given up: the next one reports them."""
        for batch in batches:
            batch.watched = batch.untold = True
        kept = {id(batch) for batch in self.failed}
        self.failed += [
            batch for batch in batches if batch.done and batch.error is not None and id(batch) not in kept
        ]

    @property
    def unattended(self) -> bool:
        """Whether messages that no caller waits for are unanswered."""
        self.asynchronous = self.asynchronous and self.buffered > 0
        return self.asynchronous

    # -- for the core ------------------------------------------------------------------------------

    async def begin(self, deadline: float) -> None:
        """Wait for a session, and find the topic of reports; raises ConnectionUnavailable, UnknownTopic."""
        await self.core.opened(deadline)
        if self.reports is not None:
            await self.route(self.reports.topic)

    async def _report(self, topic: str, key: bytes, value: bytes) -> None:
        route = await self.route(topic)
        batch, _ = route.choose(key, None).append(value, self.core.wall(), key, None)
        await batch

    def _opened(self) -> None:
        self._flush_queues()
        if self.reports is not None:
            self.reports.opened()

    def _flush_queues(self) -> None:
        for queue in self._all_queues():
            queue.flush()

    def _lost(self) -> None:
        if self.core.phase is Phase.CLOSED:
            self._stop(cast(errors.TxBrokerError, self.core.fatal))

    def _stop(self, error: errors.TxBrokerError) -> None:
        self._room.move()
        for queue in self._all_queues():
            queue.stop(error)

    def _expire(self, now: float) -> float:
        return min((queue.expire(now) for queue in self._all_queues()), default=math.inf)
