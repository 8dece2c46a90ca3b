"""What Celery takes for a channel of AMQP: what is published in it goes with a transaction, over the broker's own
protocol; what is declared in it is declared there at once.

Source: ``kombu.transport.pyamqp.Channel``, whose methods these are, as far as a ``kombu.Producer`` calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from amqp.basic_message import Message
from kombu import Producer
from kombu.transport.base import StdChannel, to_rabbitmq_queue_arguments

from txbroker.amqp import properties as props
from txbroker.amqp.reply_codes import AmqpError
from txbroker.celery import declaring
from txbroker.celery.destinations import Destination
from txbroker.channels.virtual_hosts import ROOT, ROOT_NAME, VirtualHost
from txbroker.client.blocking import Connection
from txbroker.client.producer.exchange_queue import target_of
from txbroker.errors import WrongValue
from txbroker.queues.amqp_headers import headers_of

_declared: WeakKeyDictionary[Connection, set[int]] = WeakKeyDictionary()
"""What was declared over each connection, as kombu knows it again."""


class _Client:
    """What a channel's producer takes for its ``kombu.Connection``."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    @property
    def declared_entities(self) -> set[int]:
        """What needs no further declaration."""
        return _declared.setdefault(self._destination.broker(), set())

    @contextmanager
    def _reraise_as_library_errors(self) -> Iterator[None]:
        yield


class _Transport(NamedTuple):
    """What a channel has as its connection."""

    client: _Client


class TransactionChannel(StdChannel):
    """A channel whose messages go to a destination."""

    def __init__(self, destination: Destination, host: VirtualHost = ROOT) -> None:
        self._destination, self._host = destination, host
        self.connection = _Transport(_Client(destination))

    def prepare_message(
        self,
        body: str | bytes,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Any = None,
        properties: Any = None,
    ) -> Message:
        """Return a message as py-amqp has it."""
        return Message(
            body,
            priority=priority,
            content_type=content_type,
            content_encoding=content_encoding,
            application_headers=headers,
            **properties or {},
        )

    def prepare_queue_arguments(self, arguments: Any, **given: Any) -> Any:
        """Return the arguments that a queue is declared with."""
        return to_rabbitmq_queue_arguments(arguments, **given)

    def basic_publish(
        self, message: Message, exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Add a message to the transaction."""
        body = message.body
        if isinstance(body, str):
            body = body.encode(message.properties.setdefault("content_encoding", "utf-8"))
        properties, exchange = message._serialize_properties(), self._host.inside(exchange)
        try:
            headers = headers_of(exchange, properties, props.spans_of(properties))
        except AmqpError as error:
            raise WrongValue(str(error)) from error
        self._destination.send(
            target_of(exchange, mandatory), body, key=routing_key.encode(), headers=headers
        )

    def queue_declare(self, queue: str, passive: bool = False, **given: Any) -> Any:
        """Have a queue."""
        return declaring.queue(self._destination.broker(), self._host, queue, passive, given)

    def exchange_declare(self, exchange: str, type: str, passive: bool = False, **given: Any) -> None:
        """Have an exchange."""
        declaring.exchange(self._destination.broker(), self._host, exchange, type, passive, given)

    def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        """Bind a queue to an exchange."""
        if exchange:  # the default one needs none
            ends = self._host.inside(exchange), self._host.inside(queue)
            declaring.binding(self._destination.broker(), ends, routing_key, False, arguments)

    def exchange_bind(
        self, destination: str, source: str, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        """Bind an exchange to another one."""
        ends = self._host.inside(source), self._host.inside(destination)
        declaring.binding(self._destination.broker(), ends, routing_key, True, arguments)

    def close(self) -> None:
        """Do nothing: the transaction is not the channel's."""


class TransactionProducer(Producer):
    """A producer whose messages go to a destination. Tasks must find a queue there, events need not."""

    def __init__(self, app: Any, destination: Destination) -> None:
        host = VirtualHost(app.connection_for_write().virtual_host or ROOT_NAME)
        super().__init__(TransactionChannel(destination, host), auto_declare=False)
        self._events = app.conf.event_exchange

    @property
    def connection(self) -> Any:
        """What is taken for the connection."""
        return self._channel.connection.client

    def publish(self, body: Any, *args: Any, **options: Any) -> Any:
        """Add a message; a broker that is away is waited for by the connection, not by the producer."""
        exchange = options.get("exchange")
        name = getattr(exchange, "name", exchange)
        options["retry"] = False
        options.setdefault("mandatory", name != self._events)
        return super().publish(body, *args, **options)
