"""Settings in the words of RabbitMQ, which clients look for: what differs between a declaration and what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from journal.records.queue_entries import Choice, ExchangeSettings, QueueSettings
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.virtual_hosts import VirtualHost
from txbroker.queues.kept_arguments import QUEUE_TYPE, kept, plain, queue_type

DELAYED: Final = "x-delayed-message"
"""The type of exchange of RabbitMQ's delayed-message-exchange plugin,"""
DELAYED_KIND: Final = "x-delayed-type"
"""and the argument that says by which other type it routes."""
_MILLISECOND: Final = 1_000
_ARGUMENTS: Final = {
    "durable": "durable",
    "auto_delete": "auto_delete",
    "exclusive": "exclusive",
    "internal": "internal",
    "delayed": "type",
    "kind": "type",
    "alternate": "alternate-exchange",
    "message_ttl": "x-message-ttl",
    "expires": "x-expires",
    "max_length": "x-max-length",
    "max_length_bytes": "x-max-length-bytes",
    "overflow": "x-overflow",
    "delivery_limit": "x-delivery-limit",
    "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_key": "x-dead-letter-routing-key",
    "single_active": "x-single-active-consumer",
    "max_priority": "x-max-priority",
    "consumer_timeout": "x-consumer-timeout",
    "dead_letter_strategy": "x-dead-letter-strategy",
}
"""What the settings are called over AMQP, in the order in which RabbitMQ compares them."""
QUEUE_ARGUMENTS: Final = frozenset(each for each in _ARGUMENTS.values() if each.startswith("x-"))
"""The arguments of a queue that are settings."""
_TIMES: Final = frozenset({"message_ttl", "expires", "consumer_timeout"})
_EXCHANGES: Final = ("dead_letter_exchange", "alternate")
_USUAL: Final = QueueSettings()

assert {*_ARGUMENTS, "arguments"} == {*QueueSettings.__struct_fields__, *ExchangeSettings.__struct_fields__}


def check_equivalent(
    what: str,
    name: str,
    host: VirtualHost,
    known: QueueSettings | ExchangeSettings,
    given: QueueSettings | ExchangeSettings,
) -> None:
    """Raise AmqpError if a queue or an exchange is there with other settings: PRECONDITION_FAILED, or RESOURCE_LOCKED
    if one is exclusive and the other is not. The error has the names that clients of its host know.
    """
    has, wants = (_as_declared(each, host) for each in (known, given))
    shown = host.shown(name)
    if has.get("exclusive") != wants.get("exclusive"):
        raise AmqpError(
            Reply.RESOURCE_LOCKED,
            f"cannot obtain exclusive access to locked queue {shown}: it was declared "
            f"{'exclusive' if has['exclusive'] else 'for everybody'}",
        )
    for field, argument in _ARGUMENTS.items():
        if field in has and has[field] != wants[field]:
            if field == "kind" and has["delayed"]:
                argument = DELAYED_KIND
            raise AmqpError(
                Reply.PRECONDITION_FAILED,
                f"inequivalent arg '{argument}' for {what} {shown}: received {_said(field, wants)} but current is "
                f"{_said(field, has)}",
            )
    if isinstance(known, QueueSettings) and isinstance(given, QueueSettings):
        _check_same_type(shown, known, given)


def _as_declared(settings: QueueSettings | ExchangeSettings, host: VirtualHost) -> dict[str, Any]:
    """Return settings with the names of exchanges by which a client of a host declares them."""
    found = msgspec.structs.asdict(settings)
    for field in _EXCHANGES:
        if isinstance(name := found.get(field), str):
            found[field] = host.outside(name)
    return found


def _check_same_type(shown: str, known: QueueSettings, given: QueueSettings) -> None:
    """Raise AmqpError if a queue is there as one of another type. Of one that was not declared over AMQP, or by a
    version that did not keep it, that is not known.
    """
    if known.arguments is not None and queue_type(known) != queue_type(given):
        is_said = QUEUE_TYPE in kept(given)
        received = f"the value '{queue_type(given)}' of type 'longstr'" if is_said else "none"
        raise AmqpError(
            Reply.PRECONDITION_FAILED,
            f"inequivalent arg '{QUEUE_TYPE}' for queue {shown}: received {received} but current is the value "
            f"'{queue_type(known)}' of type 'longstr'",
        )


def told_arguments(settings: QueueSettings, host: VirtualHost) -> dict[str, object]:
    """Return the arguments with which a client of RabbitMQ would declare a queue so in its host, for JSON."""
    found = {name: plain(value) for name, value in kept(settings).items()}
    given = _as_declared(settings, host)
    for field, argument in _ARGUMENTS.items():
        value = given.get(field)
        if value is None or not argument.startswith("x-") or value == getattr(_USUAL, field):
            continue
        if field in _TIMES:
            value //= _MILLISECOND
        found[argument] = value.word if isinstance(value, Choice) else value
    return found


def _said(field: str, settings: Mapping[str, object]) -> str:
    value = settings[field]
    if field == "delayed":
        return f"'{DELAYED}'" if value else _said("kind", settings)
    if value is None or (field == "max_priority" and not value):
        return "none"
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    if isinstance(value, Choice):
        return f"'{value.word}'"
    if field in _TIMES and isinstance(value, int):
        value //= _MILLISECOND
    kind = "signedint" if isinstance(value, int) else "longstr"
    return f"the value '{value}' of type '{kind}'"
