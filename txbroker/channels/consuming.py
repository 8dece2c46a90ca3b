"""The consumers of a channel: each takes messages of its queue as long as its client may have more, and delivers them.

A consumer waits at the broker with one request, as any client of the broker does. What it asks for is what its
prefetch has room for; what comes although there is none any more is given back, as if it had not been taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from secrets import token_urlsafe
from typing import Any, Final

from journal.constants import MIB
from journal.formats.frame import walk
from journal.records.access_entries import Resource, Right
from txbroker.amqp.fields import short_text
from txbroker.amqp.framing import METHOD, content_frames, frame_of, method_frame
from txbroker.amqp.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
)
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.arguments import consumer_priority
from txbroker.channels.contents import LEASE_FIELD, Content, content_of
from txbroker.channels.faces import ChannelFace
from txbroker.channels.refusals import PASSING, amqp_error
from txbroker.channels.settling import Settling
from txbroker.channels.unacknowledged import Run
from txbroker.channels.virtual_hosts import REPLY_TO
from txbroker.wire.messages import Consume, Refused, StopConsuming, TakeMessages, Taken

MAX_WAIT: Final = 60_000_000
"""µs after which a consumer that waits asks again."""
AGAIN: Final = 0.1
"""Seconds after which a consumer asks again that was refused for now."""
TAKEN_AT_ONCE: Final = 256
"""Most messages that a consumer takes at a time: they are delivered in one turn, 2 ms."""
TAKEN_BYTES: Final = MIB
"""About how many bytes of messages a consumer takes at a time."""
_DELIVER: Final = (60 << 16 | 60).to_bytes(4)
_NO_WAIT: Final = 0


class Consumer:
    """A consumer of the queue with that partition. ``limit`` is how many of its deliveries may be unacknowledged (0: as
    many as there are), ``count`` how many are.
    """

    def __init__(
        self, tag: str, number: int, partition: int, no_ack: bool, limit: int, is_leased: bool = False
    ) -> None:
        self.tag, self.number, self.partition, self.no_ack, self.limit = tag, number, partition, no_ack, limit
        self.is_leased = is_leased
        """Whether each of its deliveries has a lease."""
        self.count = 0
        self.takes = False
        """Whether a request of it is under way."""
        self.has_begun = self.is_gone = False
        self.prefix = _DELIVER + short_text(tag)


class Consuming:
    """What a channel's client consumes and gets."""

    def __init__(self, channel: ChannelFace, settling: Settling) -> None:
        self._channel, self._settling = channel, settling
        settling.on_settled = self.settled
        self._consumers: dict[str, Consumer] = {}
        self._limit = self._each_limit = 0
        """Most unacknowledged deliveries of all consumers, and of each that begins from now on; 0 for no limit."""
        self._count = 0
        """Unacknowledged deliveries of all consumers."""
        self._last_tag = 0
        self.reply_address = ""
        """What the replies to what is published here are sent to, if its client consumes them."""
        self._reply_tag = ""
        self.handlers: dict[type, Any] = {
            BasicQos: self.limit,
            BasicConsume: self.consume,
            BasicCancel: self.cancel,
            BasicGet: self.get,
        }

    def __len__(self) -> int:
        return len(self._consumers)

    # -- what the client says ----------------------------------------------------------------------

    def limit(self, method: BasicQos) -> None:
        """Bound what is delivered and not acknowledged."""
        if method.prefetch_size:
            raise AmqpError(Reply.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
        if method.is_global:
            self._limit = method.prefetch_count
        else:
            self._each_limit = method.prefetch_count
        self._channel.reply(BasicQosOk())
        self._ask_all()

    def consume(self, method: BasicConsume) -> None:
        """Begin to consume a queue."""
        channel = self._channel
        tag = method.consumer_tag or f"amq.ctag-{token_urlsafe(16)}"
        if tag in self._consumers or tag == self._reply_tag:
            raise AmqpError(Reply.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if method.queue == REPLY_TO:
            self._take_replies(tag, method)
            return
        name = channel.named(method.queue)
        channel.requests.check(Right.READ, Resource.QUEUE, name)
        queue = channel.directory.queue(name, channel.requests.session, channel.requests.host)
        priority = consumer_priority(method.arguments)
        number = channel.connection.next_consumer()
        is_leased = method.arguments.get(LEASE_FIELD) is True and not method.no_ack
        consumer = Consumer(tag, number, queue.partition, method.no_ack, self._each_limit, is_leased)
        self._consumers[tag] = consumer
        then, refused = channel.replies.later(
            lambda *_: self._began(consumer, method.no_wait), partial(self._not_begun, name)
        )
        channel.requests.ask(
            Consume, queue.partition, number, method.exclusive, priority, then=then, refused=refused
        )

    def _take_replies(self, tag: str, method: BasicConsume) -> None:
        if not method.no_ack:
            raise AmqpError(Reply.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self.reply_address:
            raise AmqpError(Reply.PRECONDITION_FAILED, "reply consumer already set")
        self._reply_tag = tag
        self.reply_address = self._channel.directory.take_replies(partial(self._reply_came, tag))
        if not method.no_wait:
            self._channel.reply(BasicConsumeOk(tag))

    def _reply_came(self, tag: str, content: Content) -> None:
        def deliver() -> None:
            self._channel.connection.send(
                b"".join(self._delivered(_DELIVER + short_text(tag), content, False))
            )

        self._channel.replies.then(deliver)  # its consumer may not have been answered yet

    def _began(self, consumer: Consumer, no_wait: bool) -> None:
        if self._channel.is_closed:
            return
        if not no_wait:
            self._channel.reply(BasicConsumeOk(consumer.tag))
        self._channel.replies.then(partial(self._begin, consumer))

    def _begin(self, consumer: Consumer) -> None:
        """Take its first messages, now that its client knows it."""
        consumer.has_begun = True
        self._channel.directory.keep_place(self._channel.requests.session, consumer.number)
        self._ask(consumer)

    def _not_begun(self, queue: str, refused: Refused) -> None:
        if refused.error == "QueueInUse":
            shown = self._channel.requests.host.shown(queue)
            self._channel.fail(AmqpError(Reply.ACCESS_REFUSED, f"queue {shown} in exclusive use"))
        else:
            self._channel.fail(amqp_error(refused, self._channel.requests.host))

    def cancel(self, method: BasicCancel) -> None:
        """End a consumer. What it has is its client's still."""
        if method.consumer_tag == self._reply_tag and self.reply_address:
            self._forget_replies()
        consumer = self._consumers.pop(method.consumer_tag, None)
        if consumer is None:
            self._cancelled(method)
            return
        consumer.is_gone = True
        [then] = self._channel.replies.later(lambda *_: self._cancelled(method))
        self._channel.requests.ask(StopConsuming, consumer.number, then=then)

    def _cancelled(self, method: BasicCancel) -> None:
        if not method.no_wait:
            self._channel.reply(BasicCancelOk(method.consumer_tag))

    def get(self, method: BasicGet) -> None:
        """Get a message, if there is one."""
        channel = self._channel
        name = channel.named(method.queue)
        channel.requests.check(Right.READ, Resource.QUEUE, name)
        queue = channel.directory.queue(name, channel.requests.session, channel.requests.host)
        then, refused = channel.replies.later(
            partial(self._got, method),
            lambda refused: channel.fail(amqp_error(refused, channel.requests.host), method),
        )
        channel.requests.ask(
            TakeMessages, queue.partition, 1, TAKEN_BYTES, _NO_WAIT, then=then, refused=refused
        )

    def _got(self, method: BasicGet, taken: Taken, data: memoryview) -> None:
        if taken.runs:
            # With its tag when it is sent: who acknowledges all up to a tag must have seen those before.
            self._channel.replies.then(partial(self._give, method, taken, data))
        else:
            self._channel.reply(BasicGetEmpty())

    def _give(self, method: BasicGet, taken: Taken, data: memoryview) -> None:
        channel = self._channel
        if channel.is_closed:
            self._give_back(taken)
            return
        offset = taken.runs[0][0]
        tried = _attempts(taken).get(offset, 0)
        content = content_of(data, 0, len(data), tried, outside=channel.requests.host.outside)
        self._last_tag = tag = self._last_tag + 1
        told = BasicGetOk(
            tag, bool(taken.redelivered), content.exchange, content.routing_key,
            channel.directory.ready(taken.partition),
        )  # fmt: skip
        if method.no_ack:
            self._settling.finish(taken.partition, offset, offset + 1)
        else:
            self._settling.deliveries.add(tag, 1, taken.partition, offset, None)
        frames = content_frames(
            channel.number, content.properties, content.body, channel.connection.frame_max
        )
        channel.connection.send(b"".join((method_frame(channel.number, told), *frames)))

    # -- taking ------------------------------------------------------------------------------------

    def _room(self, consumer: Consumer) -> int:
        """Return how many messages more may be delivered to a consumer."""
        room = TAKEN_AT_ONCE
        if not consumer.no_ack:
            if consumer.limit:
                room = min(room, consumer.limit - consumer.count)
            if self._limit:
                room = min(room, self._limit - self._count)
        return room

    def _ask_all(self) -> None:
        for consumer in self._consumers.values():
            self._ask(consumer)

    def _ask(self, consumer: Consumer) -> None:
        """Take messages for a consumer, unless it does already, or may have none."""
        if consumer.takes or not consumer.has_begun or consumer.is_gone or self._channel.is_closed:
            return
        room = self._room(consumer)
        if room <= 0:
            self._channel.directory.has_enough(self._channel.requests.session, consumer.number)
        else:
            consumer.takes = True
            self._channel.requests.ask(
                TakeMessages, consumer.partition, room, TAKEN_BYTES, MAX_WAIT, consumer=consumer.number,
                then=partial(self._came, consumer), refused=partial(self._not_taken, consumer),
            )  # fmt: skip

    def _came(self, consumer: Consumer, taken: Taken, data: memoryview) -> None:
        if not taken.runs:
            consumer.takes = False
            if not consumer.is_gone:  # not now: an idle broker would never get out of it
                self._channel.connection.in_turn(partial(self._ask, consumer))
            return
        connection = self._channel.connection
        if connection.has_time_for(sum([count for _, count in taken.runs])):
            self._delivered_of(consumer, taken, data)
        else:
            connection.in_turn(partial(self._delivered_of, consumer, taken, data))

    def _delivered_of(self, consumer: Consumer, taken: Taken, data: memoryview) -> None:
        """Deliver what has come, unless nobody wants it any more, and ask for more."""
        consumer.takes = False
        if consumer.is_gone or self._channel.is_closed:
            self._give_back(taken)
            return
        self._deliver(consumer, taken, data)
        # There may be more, and others are served first: a million in one turn are 10 s.
        self._channel.connection.in_turn(partial(self._ask, consumer))

    def _not_taken(self, consumer: Consumer, refused: Refused) -> None:
        consumer.takes = False
        if consumer.is_gone or self._channel.is_closed:
            return
        if refused.error in PASSING:
            self._channel.connection.call_later(AGAIN, partial(self._ask, consumer))
        elif refused.error == "UnknownQueue":
            # Behind the answer to who has deleted it, as from RabbitMQ: that may be its own client.
            self._channel.connection.call_later(0, partial(self._lost, consumer))
        else:
            self._channel.fail(amqp_error(refused, self._channel.requests.host))

    def _lost(self, consumer: Consumer) -> None:
        """End a consumer whose queue was deleted, and tell its client, if it wants to know."""
        consumer.is_gone = True
        if self._consumers.pop(consumer.tag, None) is not None and self._channel.connection.wants_cancels:
            self._channel.tell(BasicCancel(consumer.tag, no_wait=True))

    def _give_back(self, taken: Taken) -> None:
        for first, count in taken.runs:
            self._settling.leave(taken.partition, first, first + count)

    # -- delivering --------------------------------------------------------------------------------

    def _deliver(self, consumer: Consumer, taken: Taken, data: memoryview) -> None:
        channel, room = self._channel, self._room(consumer)
        again, attempts, outside = (
            _offsets(taken.redelivered),
            _attempts(taken),
            channel.requests.host.outside,
        )
        pieces: list[bytes | memoryview] = []
        delivered = 0
        for position, length, offset, _ in walk(data):
            if delivered == room:
                break
            tried = attempts.get(offset, 0)
            lease = self._leased(taken.partition, offset) if consumer.is_leased else ""
            content = content_of(data, position, length, tried, lease, outside)
            pieces += self._delivered(consumer.prefix, content, offset in again)
            delivered += 1
        channel.connection.send(b"".join(pieces))
        self._keep(consumer, taken, delivered)

    def _leased(self, partition: int, offset: int) -> str:
        """Return a lease for the delivery that comes next."""
        tag, settling = self._last_tag + 1, self._settling
        lease = self._channel.directory.lease(
            self._channel.requests.session, partition, offset, lambda: settling.taken_over(tag)
        )
        settling.leases[tag] = lease
        return lease.hex()

    def _delivered(self, prefix: bytes, content: Content, again: bool) -> list[bytes | memoryview]:
        """Return the frames of a delivery."""
        channel = self._channel
        self._last_tag += 1
        method = b"".join(
            (
                prefix,
                self._last_tag.to_bytes(8),
                b"\1" if again else b"\0",
                short_text(content.exchange),
                short_text(content.routing_key),
            )
        )
        frames = content_frames(
            channel.number, content.properties, content.body, channel.connection.frame_max
        )
        return [frame_of(METHOD, channel.number, method), *frames]

    def _keep(self, consumer: Consumer, taken: Taken, delivered: int) -> None:
        """Note what was delivered, the last so many tags, and give the rest back."""
        settling, partition = self._settling, taken.partition
        tag, left = self._last_tag - delivered + 1, delivered
        for first, count in taken.runs:
            some = min(count, left)
            if some and consumer.no_ack:
                settling.finish(partition, first, first + some)
            elif some:
                settling.deliveries.add(tag, some, partition, first, consumer)
            if some < count:
                settling.leave(partition, first + some, first + count)
            tag, left = tag + some, left - some
        if not consumer.no_ack:
            consumer.count += delivered
            self._count += delivered

    def settled(self, runs: Iterable[Run]) -> None:
        """Note that deliveries are acknowledged, or were returned: others may come."""
        asking = dict[Consumer, None]()
        for run in runs:
            if run.consumer is not None:
                run.consumer.count -= run.count
                self._count -= run.count
                asking[run.consumer] = None
        if self._limit:
            self._ask_all()
        else:
            for consumer in asking:
                self._ask(consumer)

    # -- the end -----------------------------------------------------------------------------------

    def _forget_replies(self) -> None:
        self._channel.directory.forget_replies(self.reply_address)
        self.reply_address = self._reply_tag = ""

    def lost(self) -> None:
        """Forget the address of replies: the connection has ended, and its consumers with it."""
        if self.reply_address:
            self._forget_replies()

    def close(self) -> None:
        """End all consumers: the channel has ended."""
        if self.reply_address:
            self._forget_replies()
        for consumer in self._consumers.values():
            consumer.is_gone = True
            self._channel.requests.ask(StopConsuming, consumer.number, then=_nothing)
        self._consumers.clear()


def _attempts(taken: Taken) -> dict[int, int]:
    return dict(taken.attempts)


def _offsets(runs: Iterable[tuple[int, int]]) -> set[int]:
    return {offset for first, count in runs for offset in range(first, first + count)}


def _nothing(*_: object) -> None:
    """Nobody waits for this."""
