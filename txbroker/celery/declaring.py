"""Queues, exchanges and bindings as Celery declares them, over the broker's own protocol: with the settings that the
same words have over AMQP, or a worker's declaration would be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from amqp.protocol import queue_declare_ok_t

from journal.records.queue_entries import Binding
from txbroker.amqp.methods import ExchangeDeclare, QueueDeclare
from txbroker.amqp.reply_codes import AmqpError
from txbroker.channels.arguments import binding_arguments, exchange_settings, queue_settings
from txbroker.channels.virtual_hosts import VirtualHost
from txbroker.client.blocking import Connection
from txbroker.errors import InvalidSetting
from txbroker.wire.answers import Answer
from txbroker.wire.messages import Bind, DeclareExchange, DeclareQueue, Done, ExchangeDeclared, QueueDeclared
from txbroker.wire.requests import Request

_PREDECLARED: Final = "amq."
T = TypeVar("T", bound=Answer)


def queue(
    broker: Connection, host: VirtualHost, name: str, passive: bool, given: Mapping[str, Any]
) -> queue_declare_ok_t:
    """Have a queue; raises DeclaredOtherwise, InvalidSetting."""
    said = QueueDeclare(
        0, name, passive, _flag(given, "durable"), _flag(given, "exclusive"), _flag(given, "auto_delete"), False,
        given.get("arguments") or {},
    )  # fmt: skip
    declare = host.entering(said)
    settings = _checked(queue_settings, declare)
    answer = _ask(
        broker, lambda number: DeclareQueue(number, declare.queue, settings, passive=passive), QueueDeclared
    )
    return queue_declare_ok_t(name, answer.ready, answer.consumers)


def exchange(
    broker: Connection, host: VirtualHost, name: str, kind: str, passive: bool, given: Mapping[str, Any]
) -> None:
    """Have an exchange; raises DeclaredOtherwise, InvalidSetting."""
    if name.startswith(_PREDECLARED):
        return
    said = ExchangeDeclare(
        0, name, kind, passive, _flag(given, "durable"), _flag(given, "auto_delete"), False, False,
        given.get("arguments") or {},
    )  # fmt: skip
    declare = host.entering(said)
    settings = _checked(exchange_settings, declare)
    _ask(
        broker,
        lambda number: DeclareExchange(number, declare.exchange, settings, passive=passive),
        ExchangeDeclared,
    )


def binding(
    broker: Connection,
    ends: tuple[str, str],
    key: str,
    to_exchange: bool,
    given: Mapping[str, Any] | None,
) -> None:
    """Have a binding from an exchange to a queue or an exchange, by the broker's names of both."""
    source, destination = ends
    made = Binding(source, key, destination, to_exchange, _checked(binding_arguments, given or {}))
    _ask(broker, lambda number: Bind(number, made), Done)


def _ask(broker: Connection, request: Callable[[int], Request], answer: type[T]) -> T:
    async def asked() -> T:
        found: T = await broker.core.request(request(broker.core.correlation()), answer)
        return found

    return broker.run(asked())


def _checked(settings: Callable[[Any], Any], declare: Any) -> Any:
    try:
        return settings(declare)
    except AmqpError as error:
        raise InvalidSetting(str(error)) from error


def _flag(given: Mapping[str, Any], name: str) -> bool:
    return bool(given.get(name))
