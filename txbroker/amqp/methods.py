"""The methods of AMQP 0-9-1 about exchanges, queues, messages and transactions, as in
:mod:`txbroker.amqp.connection_methods`.

Those of ``confirm``, ``exchange.bind`` and ``basic.nack`` are RabbitMQ's.
"""

from __future__ import annotations

from typing import ClassVar

from txbroker.amqp.connection_methods import Bit, Fields, Long, LongLong, Method, Short, ShortText


class ExchangeDeclare(Method, frozen=True):
    """Have an exchange."""

    index: ClassVar = (40, 10)
    ticket: Short
    exchange: ShortText
    kind: ShortText
    passive: Bit
    durable: Bit
    auto_delete: Bit
    internal: Bit
    no_wait: Bit
    arguments: Fields


class ExchangeDeclareOk(Method, frozen=True):
    """It is there."""

    index: ClassVar = (40, 11)


class ExchangeDelete(Method, frozen=True):
    """Delete an exchange."""

    index: ClassVar = (40, 20)
    ticket: Short
    exchange: ShortText
    if_unused: Bit
    no_wait: Bit


class ExchangeDeleteOk(Method, frozen=True):
    """It is not there any more."""

    index: ClassVar = (40, 21)


class ExchangeBind(Method, frozen=True):
    """Bind an exchange to another."""

    index: ClassVar = (40, 30)
    ticket: Short
    destination: ShortText
    source: ShortText
    routing_key: ShortText
    no_wait: Bit
    arguments: Fields


class ExchangeBindOk(Method, frozen=True):
    """It is bound."""

    index: ClassVar = (40, 31)


class ExchangeUnbind(Method, frozen=True):
    """End such a binding."""

    index: ClassVar = (40, 40)
    ticket: Short
    destination: ShortText
    source: ShortText
    routing_key: ShortText
    no_wait: Bit
    arguments: Fields


class ExchangeUnbindOk(Method, frozen=True):
    """It is ended."""

    index: ClassVar = (40, 51)


class QueueDeclare(Method, frozen=True):
    """Have a queue."""

    index: ClassVar = (50, 10)
    ticket: Short
    queue: ShortText
    passive: Bit
    durable: Bit
    exclusive: Bit
    auto_delete: Bit
    no_wait: Bit
    arguments: Fields


class QueueDeclareOk(Method, frozen=True):
    """It is there, with so many messages that can be got, and so many consumers."""

    index: ClassVar = (50, 11)
    queue: ShortText
    message_count: Long
    consumer_count: Long


class QueueBind(Method, frozen=True):
    """Bind a queue to an exchange."""

    index: ClassVar = (50, 20)
    ticket: Short
    queue: ShortText
    exchange: ShortText
    routing_key: ShortText
    no_wait: Bit
    arguments: Fields


class QueueBindOk(Method, frozen=True):
    """It is bound."""

    index: ClassVar = (50, 21)


class QueuePurge(Method, frozen=True):
    """End the messages of a queue that can be got."""

    index: ClassVar = (50, 30)
    ticket: Short
    queue: ShortText
    no_wait: Bit


class QueuePurgeOk(Method, frozen=True):
    """So many were ended."""

    index: ClassVar = (50, 31)
    message_count: Long


class QueueDelete(Method, frozen=True):
    """Delete a queue."""

    index: ClassVar = (50, 40)
    ticket: Short
    queue: ShortText
    if_unused: Bit
    if_empty: Bit
    no_wait: Bit


class QueueDeleteOk(Method, frozen=True):
    """It is not there any more, and had so many messages."""

    index: ClassVar = (50, 41)
    message_count: Long


class QueueUnbind(Method, frozen=True):
    """End a binding of a queue."""

    index: ClassVar = (50, 50)
    ticket: Short
    queue: ShortText
    exchange: ShortText
    routing_key: ShortText
    arguments: Fields


class QueueUnbindOk(Method, frozen=True):
    """It is ended."""

    index: ClassVar = (50, 51)


class BasicQos(Method, frozen=True):
    """Have at most so many messages delivered and not acknowledged."""

    index: ClassVar = (60, 10)
    prefetch_size: Long
    prefetch_count: Short
    is_global: Bit


class BasicQosOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (60, 11)


class BasicConsume(Method, frozen=True):
    """Begin to consume a queue."""

    index: ClassVar = (60, 20)
    ticket: Short
    queue: ShortText
    consumer_tag: ShortText
    no_local: Bit
    no_ack: Bit
    exclusive: Bit
    no_wait: Bit
    arguments: Fields


class BasicConsumeOk(Method, frozen=True):
    """The consumer is called so."""

    index: ClassVar = (60, 21)
    consumer_tag: ShortText


class BasicCancel(Method, frozen=True):
    """End a consumer; also said by the server."""

    index: ClassVar = (60, 30)
    consumer_tag: ShortText
    no_wait: Bit


class BasicCancelOk(Method, frozen=True):
    """It is ended."""

    index: ClassVar = (60, 31)
    consumer_tag: ShortText


class BasicPublish(Method, frozen=True):
    """Send a message, whose content follows."""

    index: ClassVar = (60, 40)
    ticket: Short
    exchange: ShortText
    routing_key: ShortText
    mandatory: Bit
    immediate: Bit


class BasicReturn(Method, frozen=True):
    """A message that found no queue comes back; its content follows."""

    index: ClassVar = (60, 50)
    reply_code: Short
    reply_text: ShortText
    exchange: ShortText
    routing_key: ShortText


class BasicDeliver(Method, frozen=True):
    """A message for a consumer; its content follows."""

    index: ClassVar = (60, 60)
    consumer_tag: ShortText
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortText
    routing_key: ShortText


class BasicGet(Method, frozen=True):
    """Get a message, if there is one."""

    index: ClassVar = (60, 70)
    ticket: Short
    queue: ShortText
    no_ack: Bit


class BasicGetOk(Method, frozen=True):
    """There is one; its content follows. ``message_count`` are left that can be got."""

    index: ClassVar = (60, 71)
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortText
    routing_key: ShortText
    message_count: Long


class BasicGetEmpty(Method, frozen=True):
    """There is none."""

    index: ClassVar = (60, 72)
    cluster_id: ShortText = ""


class BasicAck(Method, frozen=True):
    """Acknowledge a message, or with ``multiple`` all up to it; also the server's, of what was published."""

    index: ClassVar = (60, 80)
    delivery_tag: LongLong
    multiple: Bit


class BasicReject(Method, frozen=True):
    """Return a message."""

    index: ClassVar = (60, 90)
    delivery_tag: LongLong
    requeue: Bit


class BasicRecoverAsync(Method, frozen=True):
    """Return all messages, without an answer."""

    index: ClassVar = (60, 100)
    requeue: Bit


class BasicRecover(Method, frozen=True):
    """Return all messages."""

    index: ClassVar = (60, 110)
    requeue: Bit


class BasicRecoverOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (60, 111)


class BasicNack(Method, frozen=True):
    """Return messages; also the server's, of what it did not take."""

    index: ClassVar = (60, 120)
    delivery_tag: LongLong
    multiple: Bit
    requeue: Bit


class ConfirmSelect(Method, frozen=True):
    """Have what is published on the channel confirmed."""

    index: ClassVar = (85, 10)
    no_wait: Bit


class ConfirmSelectOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (85, 11)


class TxSelect(Method, frozen=True):
    """Have a transaction on the channel, always."""

    index: ClassVar = (90, 10)


class TxSelectOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (90, 11)


class TxCommit(Method, frozen=True):
    """Commit."""

    index: ClassVar = (90, 20)


class TxCommitOk(Method, frozen=True):
    """It is committed."""

    index: ClassVar = (90, 21)


class TxRollback(Method, frozen=True):
    """Roll back."""

    index: ClassVar = (90, 30)


class TxRollbackOk(Method, frozen=True):
    """It is rolled back."""

    index: ClassVar = (90, 31)
