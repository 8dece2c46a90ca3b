"""One channel of a connection: its methods, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from journal.offset_set import OffsetSet
from txbroker.amqp.connection_methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    Method,
)
from txbroker.amqp.framing import method_frame
from txbroker.amqp.methods import BasicPublish
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.consuming import Consuming
from txbroker.channels.declaring import Declaring
from txbroker.channels.directory import Directory
from txbroker.channels.faces import ConnectionFace
from txbroker.channels.pending import Transaction
from txbroker.channels.publishing import Publishing
from txbroker.channels.refusals import amqp_error
from txbroker.channels.replies import Replies
from txbroker.channels.requests import Requests, Then
from txbroker.channels.settling import Settling
from txbroker.channels.transactions import Transacting
from txbroker.wire.messages import Refused, Request


class ChannelsConnection(ConnectionFace, Protocol):
    """A connection, as its channels know it."""

    @property
    def requests(self) -> Requests:
        """What asks the broker."""

    @property
    def directory(self) -> Directory:
        """What names mean."""

    def send_method(self, channel: int, method: Method) -> None:
        """Send a method."""

    def dirty(self, channel: Channel) -> None:
        """Have a channel flushed at the end of the turn."""

    def fail(self, error: AmqpError, index: tuple[int, int] = (0, 0)) -> None:
        """Close the connection for an error."""

    def note(self, error: AmqpError, channel: int) -> None:
        """Tell operators why a channel was closed."""

    def forget(self, number: int) -> None:
        """Forget a channel that is closed on both sides."""


class Channel:
    """A channel. ``transaction`` is what it has said since its last commit, None if it is not transactional.

    ``is_closed``: it was closed; until its client has said that it knows, whatever comes on it is passed over.
    """

    def __init__(self, connection: ChannelsConnection, number: int) -> None:
        self.connection, self.number = connection, number
        self.requests, self.directory = connection.requests, connection.directory
        self.is_closed = self._is_lost = False
        self.replies = Replies(self.connection.send)
        self.last_queue = ""
        """The queue that was declared last, which is meant where none is named."""
        self.transaction: Transaction | None = None
        self.publishing, self.settling = Publishing(self), Settling(self)
        self.consuming = consuming = Consuming(self, self.settling)
        self.publishing.reply_address = lambda: consuming.reply_address
        self._under_way: Method | None = None
        """The method that is being carried out."""
        self._handlers: dict[type, Callable[[Any], None]] = {
            **Declaring(self).handlers,
            **self.publishing.handlers,
            **self.settling.handlers,
            **self.consuming.handlers,
            **Transacting(self, self.publishing, self.settling, consuming).handlers,
            ChannelFlow: self._flow,
            ChannelClose: self._close,
        }

    # -- what comes --------------------------------------------------------------------------------

    def received(self, method: Method, properties: bytes, body: memoryview) -> None:
        """Take a method; raises AmqpError."""
        if self.is_closed:
            self._pass_over(method)
            return
        method = self.requests.host.entering(method)
        if type(method) is BasicPublish:
            self.publishing.publish(method, properties, bytes(body))
            return
        handler = self._handlers.get(type(method))
        if handler is None:
            raise _unexpected(method)
        self.publishing.flush()  # requests are judged in the order in which methods came
        self._under_way = method
        handler(method)
        self._under_way = None

    def _pass_over(self, method: Method) -> None:
        """Take what comes behind the channel's close: its client may have closed it, too, and both are answered."""
        if isinstance(method, ChannelOpen):
            raise _unexpected(method)
        if isinstance(method, ChannelClose):
            self.reply(ChannelCloseOk())
        elif isinstance(method, ChannelCloseOk):
            self.connection.forget(self.number)

    def flush(self) -> None:
        """Send the broker and the client what was gathered in the turn."""
        self.publishing.flush()
        self.settling.flush()
        self.publishing.confirms.flush()

    def _flow(self, method: ChannelFlow) -> None:
        if not method.active:
            raise AmqpError(Reply.NOT_IMPLEMENTED, "active=false")
        self.reply(ChannelFlowOk(True))

    def named(self, queue: str) -> str:
        """Return the name of a queue that was given, or that of the one declared last; raises AmqpError, NOT_FOUND."""
        if queue or self.last_queue:
            return queue or self.last_queue
        raise AmqpError(Reply.NOT_FOUND, "no previously declared queue")

    def is_dirty(self) -> None:
        """Have it flushed at the end of the turn."""
        self.connection.dirty(self)

    # -- what is said and asked --------------------------------------------------------------------

    def reply(self, method: Method) -> None:
        """Answer with a method, behind the answers to those before; unless the connection is closed."""
        if not self._is_lost:
            self.replies.send(method_frame(self.number, method))

    def tell(self, method: Method) -> None:
        """Send a method that answers none, unless the channel is closed."""
        if not self.is_closed:
            self.connection.send_method(self.number, method)

    def ask(
        self, kind: Callable[..., Request], *fields: Any, then: Then, is_awaited: bool = False, **named: Any
    ) -> None:
        """Send a request for the method that is being carried out: if it is refused, the channel is closed for that.

        Nothing more is read until it has been judged, if that takes longer than this turn: what names mean may depend
        on it. One that ``is_awaited`` goes on after that; nothing is read before its answer.
        """
        self.settling.flush()
        method = self._under_way

        def fail(refusal: Refused) -> None:
            self.fail(amqp_error(refusal, self.requests.host), method)

        then, refused = self.replies.later(then, fail)
        self.connection.ask_in_order(
            kind, *fields, is_awaited=is_awaited, then=then, refused=refused, **named
        )

    # -- the end -----------------------------------------------------------------------------------

    def fail(self, error: AmqpError, method: Method | None = None) -> None:
        """Close the channel for an error, or the connection, if it is one of those."""
        if self.is_closed:
            return
        method = method or self._under_way
        index = method.index if method is not None else (0, 0)
        self._under_way = None
        if error.reply.ends_connection:
            self.connection.fail(error, index)
            return
        self.publishing.confirms.flush()
        self.reply(ChannelClose(error.reply, error.told, *index))
        self.connection.note(error, self.number)
        self._end()

    def _close(self, method: ChannelClose) -> None:  # noqa: ARG002
        self.publishing.confirms.flush()
        self._end()
        self.reply(ChannelCloseOk())
        self.replies.then(partial(self.connection.forget, self.number))

    def _end(self) -> None:
        self.publishing.flush()
        self.is_closed = True
        self.consuming.close()
        self.settling.close()
        self._release()

    def _release(self) -> None:
        """Forget what its transaction would have published."""
        if self.transaction is not None:
            self.transaction.release()

    def late(self, partition: int, offsets: OffsetSet, timeout: int) -> OffsetSet:
        """Close the channel if it has some of these deliveries, which were not acknowledged within ``timeout`` µs;
        return those: they are returned with all others that it has.
        """
        if self.is_closed:
            return OffsetSet()
        found = self.settling.those_of(partition, offsets)
        if found:
            words = (
                f"delivery acknowledgement on channel {self.number} timed out. Timeout value used: {timeout // 1000} "
                "ms. This timeout value can be configured, see consumers doc guide to learn more"
            )
            self.fail(AmqpError(Reply.PRECONDITION_FAILED, words))
        return found

    def lost(self) -> None:
        """The connection has ended, or ends: the broker returns what it has, by itself."""
        self.is_closed = self._is_lost = True
        self.replies.drop()
        self.consuming.lost()
        self._release()


def late_on(channels: Mapping[int, Channel], partition: int, offsets: OffsetSet, timeout: int) -> OffsetSet:
    """Close those of a connection's channels that have late deliveries; return the deliveries."""
    found = OffsetSet()
    for channel in list(channels.values()):
        found.update(channel.late(partition, offsets, timeout))
    return found


def _unexpected(method: Method) -> AmqpError:
    """Return the error for a method that no handler is there for."""
    if isinstance(method, ChannelOpen):
        return AmqpError(Reply.CHANNEL_ERROR, "second 'channel.open' seen")
    return AmqpError(Reply.COMMAND_INVALID, f"{type(method).__name__} is not for a server")
