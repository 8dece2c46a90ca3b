"""Queues, exchanges and bindings as commands show them: in tables, in facts, in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from rich.console import RenderableType

from journal.records.queue_entries import (
    Binding,
    DeadLetterStrategy,
    ExchangeSettings,
    Overflow,
    QueueSettings,
    Scalar,
)
from txbroker.amqp.fields import Value
from txbroker.cli.output import (
    age_text,
    bytes_json,
    bytes_text,
    count_text,
    facts,
    size_text,
    table,
    visible,
)
from txbroker.queues import kept_arguments
from txbroker.queues.compared_headers import told
from txbroker.wire.messages import ExchangeInfo, QueueInfo

QUEUE_COLUMNS: Final = (
    "queue", "messages", "ready", "unacked", "held", "oldest", "consumers", "waiting", "bytes",
)  # fmt: skip
EXCHANGE_COLUMNS: Final = ("exchange", "kind", "published", "waiting", "bindings", "internal")
UNBOUND: Final = (
    "No binding leads to it: it gets what is sent to the exchange without a name, with its name as key."
)


def exchange_text(name: str) -> str:
    """Return an exchange's name for people, as it is written on a command line: the default one has none."""
    return visible(name) or '""'


# -- queues ------------------------------------------------------------------------------------------


def later_in(queue: QueueInfo) -> int:
    """Return how many messages of a queue come later: those that are due later, or cannot be read."""
    return max(0, queue.messages - queue.ready - queue.unacknowledged - queue.held)


def queue_row(queue: QueueInfo) -> tuple[object, ...]:
    """Return the cells of a queue."""
    return (
        queue.name,
        queue.messages,
        queue.ready,
        queue.unacknowledged,
        queue.held,
        age_text(queue.oldest) if queue.oldest >= 0 else None,
        queue.consumers,
        queue.waiting,
        size_text(queue.bytes),
    )


def queue_facts(queue: QueueInfo) -> RenderableType:
    """Return what is known of a queue, for people."""
    return facts(
        [
            ("queue", queue.name),
            ("partition", str(queue.partition)),
            ("messages", queue.messages),
            ("  ready", queue.ready),
            ("  bytes ready", None if queue.ready_bytes is None else size_text(queue.ready_bytes)),
            ("  unacknowledged", queue.unacknowledged),
            ("  held", queue.held),
            ("  later", later_in(queue)),
            ("oldest", f"{age_text(queue.oldest)} ago" if queue.oldest >= 0 else None),
            ("consumers", queue.consumers),
            ("waiting requests", queue.waiting),
            ("bytes", size_text(queue.bytes)),
            *settings_facts(queue.settings),
        ]
    )


def settings_facts(settings: QueueSettings) -> list[tuple[str, str | None]]:
    """Return how a queue was declared, for people: what it has no bound of is None."""
    exchange, key = settings.dead_letter_exchange, settings.dead_letter_key
    keyed = "" if key is None else f", with key {visible(key)}"
    limit, most, size = settings.delivery_limit, settings.max_length, settings.max_length_bytes
    timeout = settings.consumer_timeout
    is_kept = settings.dead_letter_strategy is DeadLetterStrategy.AT_LEAST_ONCE
    kept = ", and kept while there is no room" if is_kept else ""
    full = "the oldest go" if settings.overflow is Overflow.DROP_HEAD else "further ones are refused"
    return [
        ("delivery limit", None if limit is None else f"returned at most {count_text(limit, 'time')}"),
        ("time to live", None if settings.message_ttl is None else age_text(settings.message_ttl)),
        ("max length", None if most is None else f"{count_text(most, 'message')}, then {full}"),
        ("max bytes", None if size is None else f"{size_text(size)} of bodies, then {full}"),
        (
            "dead letters",
            "dropped" if exchange is None else f"to exchange {exchange_text(exchange)}{keyed}{kept}",
        ),
        ("expires", None if settings.expires is None else f"after {age_text(settings.expires)} without use"),
        ("exclusive", "to one session, which it ends with" if settings.exclusive else None),
        ("auto-delete", "with its last consumer" if settings.auto_delete else None),
        ("durable", None if settings.durable else "no, it ends with the broker's process"),
        ("single active", "one consumer gets all messages until it ends" if settings.single_active else None),
        ("consumer timeout", None if timeout is None else f"{age_text(timeout)} to acknowledge a message"),
        ("priorities", f"0 to {settings.max_priority}" if settings.max_priority else None),
        ("arguments", ", ".join(map(_argument_text, kept_arguments.kept(settings).items())) or None),
    ]


def _argument_text(argument: tuple[str, Value]) -> str:
    name, value = argument
    told = kept_arguments.plain(value)
    return (
        f"{visible(name)}={visible(told if isinstance(told, str) else json.dumps(told, ensure_ascii=False))}"
    )


def queue_settings_json(settings: QueueSettings) -> dict[str, object]:
    """Return the settings of a queue in JSON; times in µs. ``arguments`` are those of its declaration over AMQP that
    are none, null if it was not declared so.
    """
    found = {name: getattr(settings, name) for name in QueueSettings.__struct_fields__}
    words = {name: found[name].word for name in ("overflow", "dead_letter_strategy")}
    return found | words | {"arguments": arguments_json(settings)}


def arguments_json(settings: QueueSettings) -> object:
    """Return the arguments that were kept of a declaration, null if it was not made over AMQP."""
    return None if settings.arguments is None else kept_arguments.plain(kept_arguments.kept(settings))


def queue_json(queue: QueueInfo) -> dict[str, object]:
    """Return a queue in JSON: ``oldest`` in µs, null if there is none or it cannot be read; ``ready_bytes`` null if
    they are not bounded, or not measured yet.
    """
    return {
        "name": queue.name,
        "partition": queue.partition,
        "settings": queue_settings_json(queue.settings),
        "messages": queue.messages,
        "ready": queue.ready,
        "ready_bytes": queue.ready_bytes,
        "unacknowledged": queue.unacknowledged,
        "held": queue.held,
        "later": later_in(queue),
        "oldest": queue.oldest if queue.oldest >= 0 else None,
        "consumers": queue.consumers,
        "waiting": queue.waiting,
        "bytes": queue.bytes,
    }


# -- exchanges ---------------------------------------------------------------------------------------


def exchange_row(exchange: ExchangeInfo) -> tuple[object, ...]:
    """Return the cells of an exchange."""
    return (
        exchange_text(exchange.name),
        exchange.settings.kind.word,
        exchange.taken,
        exchange.waiting if exchange.settings.delayed else None,
        len(exchange.bindings),
        exchange.settings.internal,
    )


def exchange_facts(exchange: ExchangeInfo) -> RenderableType:
    """Return what is known of an exchange, for people."""
    return facts(
        [
            ("exchange", exchange_text(exchange.name)),
            ("kind", exchange.settings.kind.word),
            ("published", exchange.taken),
            ("delayed", "by what the header x-delay says" if exchange.settings.delayed else None),
            ("waiting", exchange.waiting if exchange.settings.delayed else None),
            ("internal", exchange.settings.internal),
            ("auto-delete", exchange.settings.auto_delete),
            ("durable", exchange.settings.durable),
            ("alternate", _maybe_exchange(exchange.settings.alternate)),
        ]
    )


def _maybe_exchange(name: str | None) -> str | None:
    return None if name is None else exchange_text(name)


def exchange_settings_json(settings: ExchangeSettings) -> dict[str, object]:
    """Return the settings of an exchange in JSON."""
    return {
        "kind": settings.kind.word,
        "internal": settings.internal,
        "auto_delete": settings.auto_delete,
        "alternate": settings.alternate,
        "durable": settings.durable,
        "delayed": settings.delayed,
    }


def exchange_json(exchange: ExchangeInfo) -> dict[str, object]:
    """Return an exchange in JSON; ``published`` is how many messages were sent to it without a transaction, ``waiting``
    how many wait at it for their time.
    """
    return {
        "name": exchange.name,
        "number": exchange.number,
        "settings": exchange_settings_json(exchange.settings),
        "published": exchange.taken,
        "waiting": exchange.waiting,
        "bindings": [binding_json(each) for each in exchange.bindings],
    }


# -- bindings ----------------------------------------------------------------------------------------


def leading_to(queue: str, exchanges: Iterable[ExchangeInfo]) -> list[Binding]:
    """Return the bindings by which messages come to a queue, also by way of other exchanges: the nearest first."""
    left = [each for exchange in exchanges for each in exchange.bindings]
    found: list[Binding] = []
    ends = {(False, queue)}
    while ends:
        nearer = [each for each in left if (each.to_exchange, each.destination) in ends]
        left = [each for each in left if (each.to_exchange, each.destination) not in ends]
        found += nearer
        ends = {(True, each.exchange) for each in nearer}
    return found


def bindings_table(bindings: Iterable[Binding], empty: str, with_source: bool) -> RenderableType:
    """Return a table of bindings; ``with_source`` also says which exchange each is of."""
    columns = ("from exchange", "key", "to", "arguments")
    rows = [
        (
            exchange_text(each.exchange),
            visible(each.key) or '""',
            f"{'exchange' if each.to_exchange else 'queue'} {visible(each.destination)}",
            arguments_text(each.arguments) or "–",
        )
        for each in bindings
    ]
    return (
        table(columns, rows, empty) if with_source else table(columns[1:], [row[1:] for row in rows], empty)
    )


def arguments_text(arguments: Iterable[tuple[str, Scalar]]) -> str:
    """Return the arguments of a binding for people, as they are given to it."""
    return ", ".join(
        visible(name) if value is None else f"{visible(name)}={scalar_text(value)}"
        for name, value in arguments
    )


def scalar_text(value: Scalar) -> str:
    """Return an argument's value for people: text as it is, others as JSON writes them."""
    given = told(value)
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, dict | list):
        return visible(json.dumps(kept_arguments.plain(given, bytes_json), ensure_ascii=False))
    return bytes_text(given) if isinstance(given, bytes) else str(given)


def binding_json(binding: Binding) -> dict[str, object]:
    """Return a binding in JSON."""
    return {
        "exchange": binding.exchange,
        "key": binding.key,
        "destination": binding.destination,
        "to_exchange": binding.to_exchange,
        "arguments": {
            name: kept_arguments.plain(told(value), bytes_json) for name, value in binding.arguments
        },
    }
