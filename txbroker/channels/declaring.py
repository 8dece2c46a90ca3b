"""What a channel's client declares, binds and deletes."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_urlsafe
from typing import Any, Final

from journal.records.access_entries import Resource, Right
from journal.records.queue_entries import Binding, QueueSettings
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.fields import Table
from txbroker.amqp.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.arguments import binding_arguments, exchange_settings, queue_settings
from txbroker.channels.faces import ChannelFace
from txbroker.channels.inequivalence import check_equivalent
from txbroker.channels.virtual_hosts import REPLY_TO
from txbroker.wire.messages import (
    Bind,
    Counted,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    PurgeQueue,
    QueueDeclared,
    Unbind,
)

_RESERVED: Final = "amq."
_GENERATED: Final = "amq.gen-"


class Declaring:
    """Declares, binds and deletes for a channel."""

    def __init__(self, channel: ChannelFace) -> None:
        self._channel = channel
        self.handlers: dict[type, Any] = {
            ExchangeDeclare: self.declare_exchange,
            ExchangeDelete: self.delete_exchange,
            ExchangeBind: self.bind_exchange,
            ExchangeUnbind: self.unbind_exchange,
            QueueDeclare: self.declare_queue,
            QueueBind: self.bind_queue,
            QueueUnbind: self.unbind_queue,
            QueuePurge: self.purge,
            QueueDelete: self.delete_queue,
        }

    def _then(self, no_wait: bool, reply: Method) -> Callable[..., None]:
        """Return what replies when the broker has answered."""

        def then(*_: object) -> None:
            if not no_wait:
                self._channel.reply(reply)

        return then

    def _is_default(self, exchange: str) -> bool:
        return not self._channel.requests.host.outside(exchange)

    def _is_reserved(self, name: str) -> bool:
        return self._channel.requests.host.outside(name).startswith(_RESERVED)

    def _reserved(self, what: str, name: str) -> AmqpError:
        shown = self._channel.requests.host.outside(name)
        return AmqpError(Reply.ACCESS_REFUSED, f"{what} name '{shown}' contains reserved prefix 'amq.*'")

    # -- exchanges ---------------------------------------------------------------------------------

    def declare_exchange(self, method: ExchangeDeclare) -> None:
        """Have an exchange."""
        channel, name = self._channel, method.exchange
        done = self._then(method.no_wait, ExchangeDeclareOk())
        settings = None if method.passive else exchange_settings(method)
        if self._is_default(name):
            raise AmqpError(Reply.ACCESS_REFUSED, "operation not permitted on the default exchange")
        if settings is None:
            channel.requests.check(Right.DESCRIBE, Resource.EXCHANGE, name)
            channel.directory.exchange(name, channel.requests.host)
            done()
            return
        channel.requests.check(Right.CREATE, Resource.EXCHANGE, name)
        known = channel.directory.known_exchange(name)
        if known is not None:
            check_equivalent("exchange", name, channel.requests.host, known.settings, settings)
        elif self._is_reserved(name):
            raise self._reserved("exchange", name)
        channel.ask(DeclareExchange, name, settings, then=done)

    def delete_exchange(self, method: ExchangeDelete) -> None:
        """Delete an exchange; one that is not there is deleted."""
        channel, done = self._channel, self._then(method.no_wait, ExchangeDeleteOk())
        if self._is_default(method.exchange):
            raise AmqpError(Reply.ACCESS_REFUSED, "operation not permitted on the default exchange")
        if self._is_reserved(method.exchange):
            raise self._reserved("exchange", method.exchange)
        channel.requests.check(Right.DELETE, Resource.EXCHANGE, method.exchange)
        known = channel.directory.known_exchange(method.exchange)
        if known is None:
            done()
            return
        channel.ask(DeleteExchange, known.name, known.number, method.if_unused, then=done)

    def bind_exchange(self, method: ExchangeBind) -> None:
        """Bind an exchange to another."""
        self._bind_exchange(Bind, method, ExchangeBindOk())

    def unbind_exchange(self, method: ExchangeUnbind) -> None:
        """End such a binding."""
        self._bind_exchange(Unbind, method, ExchangeUnbindOk())

    def _bind_exchange(
        self, kind: Callable[..., Any], method: ExchangeBind | ExchangeUnbind, reply: Method
    ) -> None:
        key, given = method.routing_key, method.arguments
        self._bind(kind, method.source, method.destination, True, key, given, reply, method.no_wait)

    def _bind(
        self,
        kind: Callable[..., Any],
        source: str,
        destination: str,
        to_exchange: bool,
        key: str,
        given: Table,
        reply: Method,
        no_wait: bool,
    ) -> None:
        channel = self._channel
        if self._is_default(source) or (to_exchange and self._is_default(destination)):
            raise AmqpError(Reply.ACCESS_REFUSED, "operation not permitted on the default exchange")
        done = self._then(no_wait, reply)
        channel.requests.check(Right.READ, Resource.EXCHANGE, source)
        channel.requests.check(Right.WRITE, Resource.EXCHANGE if to_exchange else Resource.QUEUE, destination)
        if kind is Unbind and not channel.directory.has_ends(source, destination, to_exchange):
            done()  # there is no such binding
            return
        channel.directory.exchange(source, channel.requests.host)
        if to_exchange:
            channel.directory.exchange(destination, channel.requests.host)
        else:
            channel.directory.queue(destination, channel.requests.session, channel.requests.host)
        arguments = binding_arguments(given)
        channel.ask(kind, Binding(source, key, destination, to_exchange, arguments), then=done)

    # -- queues ------------------------------------------------------------------------------------

    def declare_queue(self, method: QueueDeclare) -> None:
        """Have a queue; without a name the broker gives one."""
        channel, name = self._channel, method.queue
        if name.startswith(REPLY_TO):
            self._look_at_replies(method)
            return
        if method.passive:
            channel.requests.check(Right.DESCRIBE, Resource.QUEUE, name)
            channel.directory.queue(name, channel.requests.session, channel.requests.host)
            self._declare(method, name, passive=True)
            return
        settings = queue_settings(method)
        if not name:
            name = channel.requests.host.inside(f"{_GENERATED}{token_urlsafe(16)}")
        elif self._is_reserved(name) and channel.directory.known_queue(name) is None:
            raise self._reserved("queue", name)
        channel.requests.check(Right.CREATE, Resource.QUEUE, name)
        channel.directory.check_not_locked(name, channel.requests.session, channel.requests.host)
        if (known := channel.directory.known_queue(name)) is not None:
            check_equivalent("queue", name, channel.requests.host, known.settings, settings)
        self._declare(method, name, settings)

    def _declare(
        self, method: QueueDeclare, name: str, *settings: QueueSettings, passive: bool = False
    ) -> None:
        """Ask for a queue. Methods that follow may mean it, although its answer waits; if it is refused, there are
        none.
        """
        channel = self._channel
        channel.last_queue = name

        def declared(answer: QueueDeclared, data: memoryview) -> None:  # noqa: ARG001
            if not method.no_wait:
                told = channel.requests.host.outside(name)
                channel.reply(QueueDeclareOk(told, answer.ready, answer.consumers))

        channel.ask(DeclareQueue, name, *settings, passive=passive, then=declared)

    def _look_at_replies(self, method: QueueDeclare) -> None:
        """Say whether somebody takes the replies that are sent to an address, which is no queue: as RabbitMQ does, so
        that who has worked long for an answer need not send it to nobody.
        """
        name = method.queue
        if name != REPLY_TO and self._channel.directory.replies_to(name) is None:
            raise AmqpError(Reply.NOT_FOUND, f"no queue {self._channel.requests.host.shown(name)}")
        if not method.no_wait:
            self._channel.reply(QueueDeclareOk(name, 0, 1))

    def bind_queue(self, method: QueueBind) -> None:
        """Bind a queue to an exchange."""
        queue, key = self._named(method)
        self._bind(Bind, method.exchange, queue, False, key, method.arguments, QueueBindOk(), method.no_wait)

    def unbind_queue(self, method: QueueUnbind) -> None:
        """End such a binding."""
        queue, key = self._named(method)
        self._bind(Unbind, method.exchange, queue, False, key, method.arguments, QueueUnbindOk(), False)

    def _named(self, method: QueueBind | QueueUnbind) -> tuple[str, str]:
        """Return the queue and the key of a binding: as the specification has it, the key is the name of the queue that
        was declared last, if neither is given.
        """
        queue = self._channel.named(method.queue)
        return queue, method.routing_key or (
            "" if method.queue else self._channel.requests.host.outside(queue)
        )

    def purge(self, method: QueuePurge) -> None:
        """End the messages of a queue that can be got."""
        channel, name = self._channel, self._channel.named(method.queue)
        channel.requests.check(Right.READ, Resource.QUEUE, name)
        channel.directory.queue(name, channel.requests.session, channel.requests.host)

        def done(counted: Counted, data: memoryview) -> None:  # noqa: ARG001
            if not method.no_wait:
                channel.reply(QueuePurgeOk(counted.messages))

        channel.ask(PurgeQueue, name, is_awaited=True, then=done)

    def delete_queue(self, method: QueueDelete) -> None:
        """Delete a queue; one that is not there is deleted."""
        channel, name = self._channel, self._channel.named(method.queue)

        def done(messages: int) -> None:
            if not method.no_wait:
                channel.reply(QueueDeleteOk(messages))

        channel.requests.check(Right.DELETE, Resource.QUEUE, name)
        if channel.directory.known_queue(name) is None:
            done(0)
            return
        queue = channel.directory.queue(name, channel.requests.session, channel.requests.host)
        # Of RabbitMQ's conditions, unlike the broker's own, nothing that was delivered and not acknowledged counts.
        shown = channel.requests.host.shown(name)
        if method.if_unused and channel.directory.has_consumers(queue.partition):
            raise AmqpError(Reply.PRECONDITION_FAILED, f"queue {shown} in use")
        if method.if_empty and channel.directory.accepted(queue.partition):
            raise AmqpError(Reply.PRECONDITION_FAILED, f"queue {shown} not empty")
        channel.ask(DeleteQueue, name, queue.partition, then=lambda counted, _: done(counted.messages))
