"""What a channel's client declares, binds and deletes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from secrets import token_urlsafe
from typing import Any, Final

from journal.records.queue_entries import Binding
from txbroker.amqp.connection_methods import Method
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

    # -- exchanges ---------------------------------------------------------------------------------

    def declare_exchange(self, method: ExchangeDeclare) -> None:
        """Have an exchange."""
        channel, name = self._channel, method.exchange
        done = self._then(method.no_wait, ExchangeDeclareOk())
        if method.passive:
            channel.directory.exchange(name)
            done()
            return
        settings = exchange_settings(method)
        known = channel.directory.known_exchange(name)
        if known is not None and name.startswith(_RESERVED):
            settings = known.settings if settings.kind is known.settings.kind else settings
        if known is None and name.startswith(_RESERVED):
            raise AmqpError(Reply.ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
        if not name:
            raise AmqpError(Reply.ACCESS_REFUSED, "operation not permitted on the default exchange")
        channel.ask(DeclareExchange, name, settings, then=done)

    def delete_exchange(self, method: ExchangeDelete) -> None:
        """Delete an exchange; one that is not there is deleted."""
        channel, done = self._channel, self._then(method.no_wait, ExchangeDeleteOk())
        if not method.exchange or method.exchange.startswith(_RESERVED):
            what = f"exchange name '{method.exchange}' contains reserved prefix 'amq.*'"
            raise AmqpError(
                Reply.ACCESS_REFUSED,
                what if method.exchange else "operation not permitted on the default exchange",
            )
        known = channel.directory.known_exchange(method.exchange)
        if known is None:
            done()
            return
        channel.ask(DeleteExchange, known.name, known.number, method.if_unused, then=done)

    def bind_exchange(self, method: ExchangeBind) -> None:
        """Bind an exchange to another."""
        self._bind(Bind, method.source, method.destination, True, method, ExchangeBindOk(), method.no_wait)

    def unbind_exchange(self, method: ExchangeUnbind) -> None:
        """End such a binding."""
        reply = ExchangeUnbindOk()
        self._bind(Unbind, method.source, method.destination, True, method, reply, method.no_wait)

    def _bind(
        self,
        kind: Callable[..., Any],
        source: str,
        destination: str,
        to_exchange: bool,
        method: ExchangeBind | ExchangeUnbind | QueueBind | QueueUnbind,
        reply: Method,
        no_wait: bool,
    ) -> None:
        channel = self._channel
        if not source or (to_exchange and not destination):
            raise AmqpError(Reply.ACCESS_REFUSED, "operation not permitted on the default exchange")
        done = self._then(no_wait, reply)
        if kind is Unbind and not channel.directory.has_ends(source, destination, to_exchange):
            done()  # there is no such binding
            return
        channel.directory.exchange(source)
        if to_exchange:
            channel.directory.exchange(destination)
        else:
            channel.directory.queue(destination, channel.requests.session)
        arguments = binding_arguments(method.arguments)
        channel.ask(kind, Binding(source, method.routing_key, destination, to_exchange, arguments), then=done)

    # -- queues ------------------------------------------------------------------------------------

    def declare_queue(self, method: QueueDeclare) -> None:
        """Have a queue; without a name the broker gives one."""
        channel, name = self._channel, method.queue
        if method.passive:
            name = channel.named(name)
            channel.directory.queue(name, channel.requests.session)
            channel.ask(DeclareQueue, name, passive=True, then=partial(self._declared, name, method.no_wait))
            return
        settings = queue_settings(method)
        if not name:
            name = f"{_GENERATED}{token_urlsafe(16)}"
        elif name.startswith(_RESERVED) and channel.directory.known_queue(name) is None:
            raise AmqpError(Reply.ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
        channel.directory.check_not_locked(name, channel.requests.session)
        channel.ask(DeclareQueue, name, settings, then=partial(self._declared, name, method.no_wait))

    def _declared(self, name: str, no_wait: bool, answer: QueueDeclared, data: memoryview) -> None:  # noqa: ARG002
        self._channel.last_queue = name
        if not no_wait:
            self._channel.reply(QueueDeclareOk(name, answer.ready, answer.consumers))

    def bind_queue(self, method: QueueBind) -> None:
        """Bind a queue to an exchange."""
        channel = self._channel
        queue = channel.named(method.queue)
        if not method.routing_key and not method.queue:
            method = QueueBind(
                0, queue, method.exchange, queue, method.no_wait, method.arguments
            )  # as the specification has it: the key is the queue, if neither is named
        self._bind(Bind, method.exchange, queue, False, method, QueueBindOk(), method.no_wait)

    def unbind_queue(self, method: QueueUnbind) -> None:
        """End such a binding."""
        queue = self._channel.named(method.queue)
        self._bind(Unbind, method.exchange, queue, False, method, QueueUnbindOk(), False)

    def purge(self, method: QueuePurge) -> None:
        """End the messages of a queue that can be got."""
        channel, name = self._channel, self._channel.named(method.queue)
        channel.directory.queue(name, channel.requests.session)

        def done(counted: Counted, data: memoryview) -> None:  # noqa: ARG001
            if not method.no_wait:
                channel.reply(QueuePurgeOk(counted.messages))

        channel.ask(PurgeQueue, name, then=done)

    def delete_queue(self, method: QueueDelete) -> None:
        """Delete a queue; one that is not there is deleted."""
        channel, name = self._channel, self._channel.named(method.queue)

        def done(messages: int) -> None:
            if not method.no_wait:
                channel.reply(QueueDeleteOk(messages))

        if channel.directory.known_queue(name) is None:
            done(0)
            return
        queue = channel.directory.queue(name, channel.requests.session)
        channel.ask(
            DeleteQueue, name, queue.partition, method.if_empty, method.if_unused,
            then=lambda counted, _: done(counted.messages),
        )  # fmt: skip
