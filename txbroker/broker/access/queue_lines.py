"""What the audit says of the records of queues, exchanges and bindings."""

from __future__ import annotations

from typing import Any, Final

from journal.parties import Actor
from journal.records.queue_entries import QUEUE_TOPIC_PREFIX, Binding
from journal.records.record import (
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    TopicCreated,
    TopicDeleted,
    Unbound,
)

QUEUE_RECORDS: Final[tuple[type, ...]] = (ExchangeDeclared, ExchangeDeleted, Bound, Unbound)
"""The kinds of records that are about nothing else."""

MOST_ARGUMENTS: Final = 5
MAX_NAME: Final = 255


def told_of_queues(record: Any) -> tuple[str, Actor | None, dict[str, Any]] | None:
    """Return what happened, who asked for it, and more about it; None if the record is about something else.

    A line is made of its record alone, and that of a queue's end names the topic: that of the queue's declaration has
    both names.
    """
    match record:
        case TopicCreated() if record.queue is not None:
            return "queue.declared", record.by, {"queue": record.queue.name, "topic": record.topic}
        case TopicDeleted() if record.topic.startswith(QUEUE_TOPIC_PREFIX):
            return "queue.deleted", record.by, {"topic": record.topic}
        case ExchangeDeclared():
            settings: dict[str, Any] = {
                "kind": record.settings.kind.name.lower(),
                "internal": record.settings.internal,
                "auto_delete": record.settings.auto_delete,
            }
            return "exchange.declared", record.by, {"exchange": record.exchange} | settings
        case ExchangeDeleted():
            return "exchange.deleted", record.by, {"exchange": record.exchange}
        case Bound():
            return "binding.made", record.by, _of_binding(record.binding)
        case Unbound():
            return "binding.ended", record.by, _of_binding(record.binding)
    return None


def _of_binding(binding: Binding) -> dict[str, Any]:
    """Return what is bound, with the names of its first arguments."""
    destination = "to_exchange" if binding.to_exchange else "queue"
    arguments = [name[:MAX_NAME] for name, _ in binding.arguments[:MOST_ARGUMENTS]]
    return {
        "exchange": binding.exchange,
        "key": binding.key,
        destination: binding.destination,
        "arguments": arguments,
    }
