"""What clients of RabbitMQ declare, as settings of queues and exchanges. Other arguments of a queue are kept with it,
those of an exchange are passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from journal.records.group_entries import LONGEST_EXPIRY
from journal.records.queue_entries import (
    MAX_PRIORITY,
    DeadLetterStrategy,
    ExchangeKind,
    ExchangeSettings,
    Overflow,
    QueueSettings,
    Scalar,
)
from txbroker.amqp.fields import Table, Value
from txbroker.amqp.methods import ExchangeDeclare, QueueDeclare
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.inequivalence import DELAYED, DELAYED_KIND, QUEUE_ARGUMENTS
from txbroker.queues.compared_headers import compared
from txbroker.queues.kept_arguments import CLASSIC, QUEUE_TYPE, packed

_KINDS: Final = {kind.word: kind for kind in ExchangeKind if kind is not ExchangeKind.DEFAULT}
_OVERFLOWS: Final = {each.word: each for each in Overflow}
_STRATEGIES: Final = {each.word: each for each in DeadLetterStrategy}
_QUEUE_TYPES: Final = (CLASSIC, "quorum")
_QUEUE_MODES: Final = ("default", "lazy")
_MILLISECOND: Final = 1_000


def queue_settings(declare: QueueDeclare) -> QueueSettings:
    """Return the settings that a declaration asks for; raises AmqpError, PRECONDITION_FAILED."""
    given = declare.arguments
    kind = _one_of(given, QUEUE_TYPE, _QUEUE_TYPES, CLASSIC)
    _one_of(given, "x-queue-mode", _QUEUE_MODES, "default")
    if kind == "quorum" and (declare.exclusive or declare.auto_delete or not declare.durable):
        raise AmqpError(
            Reply.PRECONDITION_FAILED,
            "a quorum queue is durable, neither exclusive nor auto-delete; nothing has changed",
        )
    overflow = _OVERFLOWS[_one_of(given, "x-overflow", _OVERFLOWS, Overflow.DROP_HEAD.word)]
    usual = DeadLetterStrategy.AT_MOST_ONCE.word
    strategy = _STRATEGIES[_one_of(given, "x-dead-letter-strategy", _STRATEGIES, usual)]
    return QueueSettings(
        delivery_limit=_number(given, "x-delivery-limit"),
        dead_letter_exchange=_text(given, "x-dead-letter-exchange"),
        dead_letter_key=_text(given, "x-dead-letter-routing-key"),
        message_ttl=_span(given, "x-message-ttl"),
        max_length=_number(given, "x-max-length"),
        overflow=overflow,
        expires=_span(given, "x-expires"),
        exclusive=declare.exclusive,
        auto_delete=declare.auto_delete,
        durable=declare.durable or declare.exclusive,  # which ends before that, and is the same in either way
        single_active=_truth(given, "x-single-active-consumer"),
        max_priority=_max_priority(given),
        max_length_bytes=_number(given, "x-max-length-bytes"),
        consumer_timeout=_span(given, "x-consumer-timeout"),
        dead_letter_strategy=strategy,
        arguments=_kept(given),
    )


def exchange_settings(declare: ExchangeDeclare) -> ExchangeSettings:
    """Return the settings that a declaration asks for; raises AmqpError: COMMAND_INVALID for an unknown kind,
    PRECONDITION_FAILED for a delayed exchange that says no other kind.
    """
    said, delayed = declare.kind, declare.kind == DELAYED
    if delayed:
        given = declare.arguments.get(DELAYED_KIND)
        if not isinstance(given, str) or given == DELAYED:
            raise _invalid(DELAYED_KIND, given, "the type that the exchange has beside its delays")
        said = given
    kind = _KINDS.get(said)
    if kind is None:
        raise AmqpError(Reply.COMMAND_INVALID, f"unknown exchange type '{said}'; nothing has changed")
    return ExchangeSettings(
        kind,
        declare.internal,
        declare.auto_delete,
        _text(declare.arguments, "alternate-exchange"),
        declare.durable,
        delayed,
    )


def binding_arguments(given: Table) -> tuple[tuple[str, Scalar], ...]:
    """Return the arguments of a binding; raises AmqpError, PRECONDITION_FAILED for one with a time that is none."""
    return tuple((name, _scalar(name, given[name])) for name in sorted(given))


def consumer_priority(given: Table) -> int:
    """Return the priority that a consumer asks for; raises AmqpError, PRECONDITION_FAILED."""
    value = given.get("x-priority", 0)
    if type(value) is not int or abs(value) >= 1 << 31:
        raise _invalid("x-priority", value, "a number")
    return value


def _scalar(name: str, value: Value) -> Scalar:
    found = compared(value)
    if found is None or isinstance(found, bytes | int | float | bool):
        return found
    raise _invalid(name, value, "of numbers with at most 64 bits and their sign")


def _text(given: Table, name: str) -> str | None:
    value = given.get(name)
    if value is None or (isinstance(value, str) and len(value.encode()) <= 255):
        return value
    raise _invalid(name, value, "text of at most 255 bytes")


def _one_of(given: Table, name: str, words: Collection[str], usual: str) -> str:
    value = given.get(name)
    if value is None:
        return usual
    if not isinstance(value, str) or value not in words:
        raise _invalid(name, value, f"one of {', '.join(words)}")
    return value


def _kept(given: Table) -> bytes:
    """Return the arguments of a queue that are no settings."""
    try:
        return packed({name: value for name, value in given.items() if name not in QUEUE_ARGUMENTS})
    except ValueError as error:
        raise AmqpError(
            Reply.PRECONDITION_FAILED, f"the arguments cannot be kept: {error}; nothing has changed"
        ) from error


def _number(given: Mapping[str, Value], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise _invalid(name, value, "a number from 0 on")
    return value


def _max_priority(given: Table) -> int:
    found = _number(given, "x-max-priority")
    if found is not None and found > MAX_PRIORITY:
        raise _invalid("x-max-priority", found, f"a number from 0 to {MAX_PRIORITY}")
    return found or 0


def _span(given: Table, name: str) -> int | None:
    """Return a time in ms as µs."""
    value = _number(given, name)
    if value is not None and value * _MILLISECOND > LONGEST_EXPIRY:
        raise _invalid(name, value, f"at most {LONGEST_EXPIRY // _MILLISECOND} ms")
    return None if value is None else value * _MILLISECOND


def _truth(given: Table, name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise _invalid(name, value, "a truth value")
    return value


def _invalid(name: str, value: Value, wanted: str) -> AmqpError:
    shown = repr(value)
    return AmqpError(
        Reply.PRECONDITION_FAILED,
        f"invalid arg '{name}': {shown if len(shown) <= 60 else shown[:60] + '...'}; it must be {wanted}; nothing has "
        "changed",
    )
