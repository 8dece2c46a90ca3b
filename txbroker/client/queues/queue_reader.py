"""The reading of one queue: messages that the broker gave to this session, and the callers that wait for some."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from journal.arguments import whole
from journal.due_time import After, due_time
from journal.formats import frame
from journal.formats.offset_set_bytes import MAX_AHEAD
from journal.offset_set import OffsetSet
from journal.records.group_entries import MAX_PAUSE, Retried, Settled
from journal.records.queue_entries import QUEUE_GROUP
from txbroker import errors
from txbroker.client.consumer.delivery import Chunk, Delivery
from txbroker.client.core.call import AnswerLost, Call
from txbroker.client.core.core import Core
from txbroker.client.core.options import Lost
from txbroker.client.core.phase import Phase
from txbroker.client.core.positions import Position
from txbroker.client.core.promise import Cancelled, Task, ended, start
from txbroker.client.core.results import Message, topic_of_queue
from txbroker.client.core.waits import Line, Turn
from txbroker.client.queues.queue_consumer import NOTHING_TAKEN, QueueConsumer
from txbroker.client.queues.queue_messages import (
    by_queue,
    check_session,
    give_back,
    offsets_of,
    on_settled,
    settled,
    settled_of,
)
from txbroker.wire.messages import (
    MAX_TAKEN,
    Cancel,
    CommitOffsets,
    DeclareQueue,
    Done,
    QueueDeclared,
    TakeMessages,
    Taken,
)

LONGEST_WAIT: Final = 30.0
"""Seconds that one request waits at the broker."""
MOST_PREFETCHED: Final = MAX_TAKEN


class QueueReader:
    """Reads the queue ``name``. At most ``prefetch`` messages are taken at a time.

    The broker knows it as a consumer after :meth:`consume`, and from the start if it is ``exclusive`` or has a
    ``priority``.

    What it has taken and not handed out is this session's: nobody else gets it before it is given back, by
    :meth:`close`, or when nobody waits for it as it comes.
    """

    def __init__(
        self, core: Core, name: str, prefetch: int, priority: int = 0, exclusive: bool = False
    ) -> None:
        self.name = name
        self.core = core
        self._prefetch = whole("prefetch", prefetch, NOTHING_TAKEN, least=1, most=MOST_PREFETCHED)
        self._consumer = QueueConsumer(core, priority, exclusive)
        self.closed = False
        self._partition = 0
        self._session = 0
        self._deliveries: deque[Delivery] = deque()
        self._handed = defaultdict[int, OffsetSet](OffsetSet)
        """What was handed out in this session, by partition: each priority has its own. What is not settled is given
        back at the end.
        """
        self._gone = defaultdict[int, OffsetSet](OffsetSet)
        """Those that were settled since they came."""
        self._error: errors.TxBrokerError | None = None
        self._taking: Task[None] | None = None
        self._call: Call[Taken] | None = None
        """The request that waits at the broker."""
        self._brief: dict[Turn, None] = {}
        """The callers that wait no longer than for one answer of the broker,"""
        self._asked_for: list[Turn] = []
        """and those of them for whom it was asked last."""
        self.line: Line = _Callers(self)
        core.on_lost.append(self._lost)
        core.on_mend.append(self._mend)
        on_settled(core).append(self._settled)

    # -- for callers -------------------------------------------------------------------------------

    def consume(self) -> None:
        """Have the broker know it as a consumer of its queue, from the next request on and until it is closed."""
        self._consumer.is_wanted = not self.closed

    def join(self, deadline: float) -> Turn:
        """Get in line for :meth:`look`, until ``deadline`` by the core's clock.

        If that has come already, the broker is asked once, and the wait is for its answer; unless others wait longer:
        then it has nothing.
        """
        is_brief = deadline <= self.core.clock() and self._count_brief() == len(self.line)
        turn = self.line.join(math.inf if is_brief else deadline)
        if not turn.done:
            if is_brief:
                self._brief[turn] = None
            self._take(deadline)
        return turn

    def _count_brief(self) -> int:
        return sum(not each.done for each in self._brief)

    def look(self) -> Delivery | None:
        """Return the delivery that has the next message, for the caller that has the turn; raises the error that keeps
        messages from coming, once.
        """
        if self.closed:
            raise errors.Misuse(f"queue {self.name!r} is not read here any more: it was closed")
        self._drop_handed()
        if self._deliveries:
            return self._deliveries[0]
        error, self._error = self._error, None
        if error is not None:
            raise error.with_traceback(None)
        if self._is_interrupted:
            taking, self._taking = self._taking, None
            assert taking is not None
            taking.result()
        return None

    async def settle(
        self, what: Message | Sequence[Message], retried: tuple[int, str, bool] | None = None
    ) -> None:
        """Acknowledge messages; or with ``retried`` (µs until they are due, why, whether they are dead) return them.
        All of them, or none.
        """
        found, said = self._checked(what), list[Settled]()
        for partition, messages in found.items():
            if retried is None:
                said += settled_of(partition, messages)
            else:
                after, why, dead = retried
                base = min(each.offset for each in messages)
                entries = [Retried(each.offset, each.attempts, after, why, dead) for each in messages]
                said.append(Settled(partition, 0, base, retried=entries))
            settled(self.core, partition, messages)
        request = CommitOffsets(self.core.correlation(), QUEUE_GROUP, [], settled=said)
        try:
            # In another session it would be answered as done if anybody else has settled them since.
            await self.core.request(request, Done, rule=Lost.ASK)
        except AnswerLost as error:
            count = sum(map(len, found.values()))
            raise errors.OutcomeUnknown(
                f"{error}: if the broker had not heard of it, {count} messages of queue {self.name!r} are delivered "
                "again, perhaps to others"
            ) from error
        except errors.TxBrokerError:
            for partition, messages in found.items():
                self._gone[partition].difference_update(offsets_of(messages))
            raise

    def _checked(self, what: Message | Sequence[Message]) -> dict[int, list[Message]]:
        found = by_queue(what)
        for each in (each for messages in found.values() for each in messages):
            if each.topic != topic_of_queue(self.name):
                raise errors.Misuse(
                    f"a message of {each.topic!r} is not one of queue {self.name!r}; nothing was acknowledged"
                )
        check_session(self.core, found)
        return found

    def close(self, failed: bool = False) -> None:
        """Give back what was taken and is not settled; nothing more is taken.

        ``failed``: an attempt is counted for each message that was handed out.
        """
        if self.closed:
            return
        self.closed = True
        self._cancel()
        for each in self._deliveries:
            each.withhold()
            for partition, messages in by_queue(each.remaining().messages).items():
                give_back(self.core, self._session, partition, offsets_of(messages), counted=False)
            for partition, messages in by_queue(each.handed_messages()).items():
                self._handed[partition].update(offsets_of(messages))
        self._deliveries.clear()
        for partition, offsets in self._handed.items():
            offsets.difference_update(self._gone[partition])
            give_back(self.core, self._session, partition, offsets, counted=failed)
        self._consumer.close()
        self.core.on_lost.remove(self._lost)
        self.core.on_mend.remove(self._mend)
        on_settled(self.core).remove(self._settled)
        self.line.move()

    # -- taking ------------------------------------------------------------------------------------

    def has_something(self) -> bool:
        """Return whether there is something for a caller."""
        has_failed = self._error is not None or self._is_interrupted
        return self.closed or has_failed or any(not each.is_empty for each in self._deliveries)

    @property
    def _is_interrupted(self) -> bool:
        """Whether an interrupt has ended what asks for messages: it is for a caller."""
        error = self._taking.error if self._taking is not None else None
        return error is not None and not isinstance(error, Cancelled)  # of those its caller knows already

    def _drop_handed(self) -> None:
        while self._deliveries and self._deliveries[0].is_empty:
            for each in self._deliveries.popleft().messages:
                self._handed[each.partition].add(each.offset)
            # The broker delivers nothing so far above what is not settled.
            for handed in self._handed.values():
                handed.discard_below(handed.end - MAX_AHEAD)

    def _take(self, deadline: float) -> None:
        """Ask for messages, unless that is under way."""
        if self.closed or self.has_something() or (self._taking is not None and not self._taking.done):
            return
        self._taking = start(self._ask(deadline))
        self._taking.then(self.line.move)

    async def _ask(self, deadline: float) -> None:
        while True:
            try:
                await self._ask_once(deadline)
            except errors.TxBrokerError as error:
                self._error = error
            self.line.move()  # callers that resume in it may come again
            if self.closed or not len(self.line) or self.has_something():
                return
            deadline = (
                self._next_deadline()
            )  # others may wait longer than the caller for whom it was asked first

    def _next_deadline(self) -> float:
        """Return until when the next request waits: it is the answer that is waited for if a caller waits for that."""
        return self.core.clock() if self._count_brief() else math.inf

    async def _ask_once(self, deadline: float) -> None:
        """Have one request answered, the one that waits or another one."""
        core = self.core
        if self._call is None:
            if not self._partition:
                declare = DeclareQueue(core.correlation(), self.name, passive=True)
                self._partition = (await core.request(declare, QueueDeclared)).partition
            await self._consumer.register(self._partition)
            if self.closed:
                return
            wait = max(0.0, min(deadline - core.clock(), LONGEST_WAIT))
            request = TakeMessages(
                core.correlation(), self._partition, self._prefetch, max_wait=math.ceil(wait * 1e6),
                consumer=self._consumer.number,
            )  # fmt: skip
            # Noted before it is sent: what it is answered with must not be lost to an interrupt.
            self._call = Call(request, Taken, b"", core.clock() + wait + core.options.timeout)
            self._asked_for = [each for each in self._brief if not each.done]
        call = self._call
        if not (call.done or core.has(call)):
            core.submit(call)
        await ended(call)
        self._note()
        if not self.has_something():
            asked, self._asked_for = self._asked_for, []
            for each in asked:
                each.run_out()

    def _note(self) -> None:
        """Keep what the request that waited was answered with; give it back if nobody waits for it. After an interrupt
        it may be called again.
        """
        call = self._call
        if call is None or not call.done:
            return
        if isinstance(call.error, errors.TxBrokerError):
            if isinstance(call.error, errors.UnknownQueue):
                self._forget_queue()
            error = None if self._is_of_ended_consumer(call) else call.error
            self._error, self._call = error, None
            return
        delivery = self._delivery(call.result(), call.data)
        if delivery.messages and (self.closed or self.line.is_free):
            for partition, messages in by_queue(delivery.messages).items():
                give_back(self.core, self._session, partition, offsets_of(messages), counted=False)
            self._call = None
        elif delivery.messages:
            self._deliveries, self._call = deque([*self._deliveries, delivery]), None
        else:
            self._call = None

    def _forget_queue(self) -> None:
        """Forget the number of a queue that was deleted: there may be another one of its name."""
        self._partition = 0
        self._consumer.lost()

    def _is_of_ended_consumer(self, call: Call[Taken]) -> bool:
        """Return whether a request was refused because it came to another session than that of its consumer."""
        request = call.request
        assert isinstance(request, TakeMessages), "it takes messages"
        is_refused = isinstance(call.error, errors.InvalidSetting) and request.consumer
        return bool(is_refused) and request.consumer != self._consumer.number

    def _delivery(self, answer: Taken, data: bytes | memoryview) -> Delivery:
        self._session, name, attempts = self.core.session, topic_of_queue(self.name), dict(answer.attempts)
        again = OffsetSet()
        for first, count in answer.redelivered:
            again.add_range(first, first + count)
        messages = [
            Message(
                name, answer.partition, each.offset, each.timestamp, each.key, each.value, each.headers,
                attempts.get(each.offset, 0), self._session, each.appended, each.offset in again,
            )
            for piece, _ in frame.decode_pieces(memoryview(data), 0)
            for each in piece
        ]  # fmt: skip
        self._gone[answer.partition].difference_update(offsets_of(messages))
        chunk = Chunk(Position(name, answer.partition, answer.partition, -1), [])
        return Delivery(chunk, messages)

    def _cancel(self) -> None:
        if self._call is not None and self.core.phase is Phase.OPEN:
            self.core.post(Cancel(self.core.correlation(), self._call.request.correlation))

    def left(self) -> None:
        """Have the broker answer at once if nobody waits any more; ask for those who still do."""
        if self.closed:
            return
        if self.line.is_free:
            self._cancel()
        elif len(self.line):
            self._take(self._next_deadline())

    def gone(self, turn: Turn) -> None:
        """Note that a caller does not wait any more."""
        self._brief.pop(turn, None)

    def _lost(self) -> None:
        """Drop what belonged to the session that has ended: it is given to others."""
        for each in self._deliveries:
            each.withhold()
        self._deliveries.clear()
        self._consumer.lost()
        self._handed.clear()
        self._gone.clear()

    def _settled(self, partition: int, offsets: OffsetSet) -> None:
        """Give back none of these at the end: they are settled, and another reader may get them again."""
        if partition in self._gone:
            gone = self._gone[partition]
            gone.update(offsets)
            gone.discard_below(gone.end - MAX_AHEAD)

    def _mend(self) -> None:
        """Repair after an interrupt."""
        self._note()
        if self._call is not None or len(self.line):
            if self._taking is None or self._taking.done:
                self._taking = start(self._ask(self._next_deadline()))
            else:
                self._taking.wake()
        self.line.mend()


class _Callers(Line):
    """The callers that wait at a queue, which learns when one has gone."""

    def __init__(self, reader: QueueReader) -> None:
        super().__init__(reader.has_something, reader.core.waits.alarms, reader.core.waits.soon)
        self._reader = reader

    def _left(self, turn: Turn) -> None:
        super()._left(turn)
        self._reader.gone(turn)
        self._reader.left()


def after_of(after: After | None) -> int:
    """Return in how many µs a returned message is due; raises WrongType, WrongValue."""
    found = due_time(0 if after is None else after, None, "nothing was returned")
    assert found is not None
    if found.micros > MAX_PAUSE:
        raise errors.WrongValue(f"after is {after}; it must be at most 366 days; nothing was returned")
    return found.micros
