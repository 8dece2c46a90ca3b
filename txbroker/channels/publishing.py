"""Messages that a channel's client publishes: gathered into requests, confirmed, or returned.

What was read together goes into one request, as long as it is for the same exchange: it is one record of the journal,
and one answer. If the broker refuses it for one of its messages, its halves are sent again, so that those which can be
taken are. A mandatory message goes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from journal.constants import KIB, MAX_REQUEST_DATA
from journal.records.access_entries import Resource, Right
from journal.records.queue_entries import address_of
from txbroker.amqp import properties as props
from txbroker.amqp.fields import short_text
from txbroker.amqp.framing import content_frames, method_frame
from txbroker.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
)
from txbroker.amqp.properties import Spans
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.confirms import Confirms
from txbroker.channels.contents import Content, content_of, frame_of
from txbroker.channels.faces import ChannelFace
from txbroker.channels.refusals import PASSING, access_refused, amqp_error
from txbroker.channels.virtual_hosts import REPLY_TO
from txbroker.wire.messages import Refused, Send, Sent

ENOUGH: Final = 256 * KIB
"""A request with so many bytes is sent at once."""
MOST: Final = 1024
"""Most messages of one request."""
_DIVISIBLE: Final = frozenset({"QueueFull", "LimitExceeded", "MessageTooLarge", "InvalidFrame"})
"""Refusals of a request that others of its messages need not have."""


class _Batch:
    """Messages for one address, those of the tags from ``first`` on (0: without confirms). ``method`` is that of one of
    them. One that is to come back if it finds no queue is alone.
    """

    __slots__ = ("address", "first", "frames", "method", "size")

    def __init__(self, method: BasicPublish, address: int, first: int) -> None:
        self.method, self.address, self.first, self.size = method, address, first, 0
        self.frames: list[bytes] = []

    def halves(self) -> tuple[_Batch, _Batch]:
        """Return two batches with the messages of this one."""
        middle = len(self.frames) // 2
        first, second = (
            _Batch(self.method, self.address, self.first),
            _Batch(self.method, self.address, self.first and self.first + middle),
        )
        first.frames, second.frames = self.frames[:middle], self.frames[middle:]
        return first, second


class Publishing:
    """Publishes for a channel. ``is_confirmed``: its client wants to know what became of each."""

    def __init__(self, channel: ChannelFace) -> None:
        self._channel = channel
        self.is_confirmed = False
        self.reply_address: Callable[[], str] = str
        """Returns what the replies to what is published here are sent to, if its client consumes them."""
        self._batch: _Batch | None = None
        self._last_tag = 0
        self.confirms = Confirms(self._tell)
        self.handlers: dict[type, Any] = {ConfirmSelect: self.select}

    def select(self, method: ConfirmSelect) -> None:
        """Confirm what is published from now on."""
        if self._channel.transaction is not None:
            raise AmqpError(Reply.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self.is_confirmed = True
        if not method.no_wait:
            self._channel.reply(ConfirmSelectOk())

    def publish(self, method: BasicPublish, properties: bytes, body: bytes) -> None:
        """Publish a message; raises AmqpError."""
        channel = self._channel
        channel.connection.blocking.publishes = True
        if method.immediate:
            raise AmqpError(Reply.NOT_IMPLEMENTED, "immediate=true")
        known = channel.directory.known_exchange(method.exchange)
        if known is None or known.settings.internal:  # else the broker asks when it gets the message
            channel.requests.check(Right.WRITE, Resource.EXCHANGE, method.exchange)
        exchange = channel.directory.exchange(method.exchange, channel.requests.host)
        if exchange.settings.internal:
            shown = channel.requests.host.shown(exchange.name)
            raise AmqpError(Reply.ACCESS_REFUSED, f"cannot publish to internal exchange {shown}")
        spans = props.spans_of(properties)
        if props.HEADERS in spans:
            props.headers_of(properties, spans)  # nobody who gets them must find that they are none
        if props.USER_ID in spans:
            self._check_user(props.short_of(properties, spans, props.USER_ID))
        if props.REPLY_TO in spans:
            properties, spans = self._with_address(properties, spans)
        tag = 0
        if self.is_confirmed:
            self._last_tag = tag = self._last_tag + 1
        if exchange.has_no_bindings and method.routing_key.startswith(REPLY_TO):
            self._reply(Content("", method.routing_key, properties, body), method.mandatory, tag)
            return
        frame = frame_of(
            method.exchange, method.routing_key, properties, spans, body, channel.connection.now()
        )
        if channel.transaction is not None:
            channel.transaction.publish(exchange.number, frame, method.mandatory)
            return
        self._add(method, address_of(exchange.number, method.mandatory), frame, tag)

    def _check_user(self, said: str) -> None:
        principal = self._channel.requests.session.principal
        if said != principal and said != self._channel.connection.user:
            raise AmqpError(
                Reply.PRECONDITION_FAILED,
                f"user_id property set to '{said[:80]}' but authenticated user was "
                f"'{self._channel.connection.user}'",
            )

    def _with_address(self, properties: bytes, spans: Spans) -> tuple[bytes, Spans]:
        """Return properties with the address of the channel's own consumer of replies, if that is meant."""
        if props.short_of(properties, spans, props.REPLY_TO) != REPLY_TO:
            return properties, spans
        address = self.reply_address()
        if not address:
            raise AmqpError(Reply.PRECONDITION_FAILED, "fast reply consumer does not exist")
        properties = props.replaced(properties, spans, {props.REPLY_TO: short_text(address)})
        return properties, props.spans_of(properties)

    def _reply(self, content: Content, mandatory: bool, tag: int) -> None:
        """Give a message to the consumer of a channel: it is in no queue, and in no journal."""
        deliver = self._channel.directory.replies_to(content.routing_key)
        if deliver is not None:
            deliver(content)
        elif mandatory:
            self._channel.connection.send(self.returned(content))
        self._confirm(tag, 1)

    # -- requests ----------------------------------------------------------------------------------

    def _add(self, method: BasicPublish, address: int, frame: bytes, tag: int) -> None:
        batch = self._batch
        if batch is not None and (
            batch.address != address
            or batch.size + len(frame) > MAX_REQUEST_DATA
            or (tag and batch.first + len(batch.frames) != tag)
        ):
            self.flush()
            batch = None
        if batch is None:
            batch = self._batch = _Batch(method, address, tag)
            self._channel.is_dirty()
        batch.frames.append(frame)
        batch.size += len(frame)
        if (
            method.mandatory
            or batch.size >= ENOUGH
            or len(batch.frames) >= MOST
            or (not tag and self._channel.directory.may_lack_room(batch.size))  # nothing may overtake it then
        ):
            self.flush()

    def flush(self) -> None:
        """Send what was gathered."""
        batch, self._batch = self._batch, None
        if batch is not None:
            self._send(batch)

    def _send(self, batch: _Batch) -> None:
        frames, directory = batch.frames, self._channel.directory
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        if len(frames) > 1 and directory.refuses(batch.address, data):
            for half in batch.halves():  # now: what follows must not overtake those that can be taken
                self._send(half)
            return
        self._channel.connection.ask_in_order(
            Send, batch.address, data=data, is_awaited=not batch.first and directory.may_lack_room(len(data)),
            then=partial(self._sent, batch.first, len(frames)), refused=partial(self._refused, batch),
        )  # fmt: skip

    def _sent(self, first: int, count: int, answer: Sent, data: memoryview) -> None:  # noqa: ARG002
        if first:
            self._confirm(first, count)

    def _refused(self, batch: _Batch, refused: Refused) -> None:
        if refused.error == "DiskFull":
            self._channel.connection.blocking.refused()
            if not batch.first:  # nobody would be told
                self._channel.connection.blocking.wait(partial(self._send, batch))
                return
        if len(batch.frames) > 1 and refused.error in _DIVISIBLE:
            for half in batch.halves():
                self._send(half)
        elif self._channel.is_closed:
            return
        elif refused.error == "Unroutable":
            [frame] = batch.frames
            outside = self._channel.requests.host.outside
            self._channel.connection.send(self.returned(content_of(frame, 0, len(frame), 0, outside=outside)))
            self._confirm(batch.first, 1)
        elif refused.error == "QueueFull" or (batch.first and refused.error in PASSING):
            self._confirm(batch.first, len(batch.frames), taken=False)
        elif refused.error == "AccessDenied":
            name, requests = batch.method.exchange, self._channel.requests
            principal = requests.session.principal
            error = access_refused(Right.WRITE, Resource.EXCHANGE, name, principal, requests.host)
            self._channel.fail(error, batch.method)
        else:
            self._channel.fail(amqp_error(refused, self._channel.requests.host))

    def returned(self, content: Content) -> bytes:
        """Return the frames by which a message is returned that found no queue."""
        channel = self._channel
        told = BasicReturn(Reply.NO_ROUTE, "NO_ROUTE", content.exchange, content.routing_key)
        frames = content_frames(
            channel.number, content.properties, content.body, channel.connection.frame_max
        )
        return b"".join((method_frame(channel.number, told), *frames))

    # -- confirms ----------------------------------------------------------------------------------

    def _confirm(self, first: int, count: int, taken: bool = True) -> None:
        """Have the client told at the end of the turn that messages were taken, or were not, if it wants to know."""
        if first:
            self.confirms.add(first, count, taken)
            self._channel.is_dirty()

    def _tell(self, tag: int, multiple: bool, taken: bool) -> None:
        self._channel.tell(BasicAck(tag, multiple) if taken else BasicNack(tag, multiple, False))
