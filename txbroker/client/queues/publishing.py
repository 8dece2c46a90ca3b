"""What is published: a message with a routing key that goes through an exchange."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from journal.arguments import NOTHING_SENT, text, whole
from journal.due_time import After, time_span
from journal.message_headers import GivenHeaders, GivenId, GivenTags, headers_of
from journal.records.queue_entries import MAX_PRIORITY
from txbroker.client.producer.exchange_queue import target_of
from txbroker.wire.queues import EXPIRATION, PRIORITY


def key_of(key: str) -> bytes:
    """Return a routing key as the key of a message; raises WrongType, WrongValue."""
    return text("key", key, NOTHING_SENT).encode()


def publishing_headers(headers: GivenHeaders | None, ttl: After | None, priority: int) -> GivenHeaders | None:
    """Return the headers of a message that expires after that time, if any, and has that priority; raises WrongType,
    WrongValue.
    """
    level = whole("priority", priority, NOTHING_SENT, least=0, most=MAX_PRIORITY)
    if ttl is None and not level:
        return headers
    found = list(headers_of(headers or ()))
    if ttl is not None:
        found.append((EXPIRATION, b"%d" % time_span("ttl", ttl)))
    if level:
        found.append((PRIORITY, b"%d" % level))
    return tuple(found)


class Publishes:
    """A transaction, or a block of ``atomic``, that can send."""

    def publish(
        self: Any,
        exchange: str,
        key: str,
        value: bytes | None,
        headers: GivenHeaders | None = None,
        *,
        mandatory: bool = True,
        id: GivenId = None,
        tags: GivenTags = None,
        ttl: After | None = None,
        priority: int = 0,
    ) -> Any:
        """Add a message that goes through an exchange, as ``Connection.publish`` sends one; ends as ``send`` does.

        Its queues are found when it reaches the broker, at the prepare or commit at the latest; the commit puts it
        into all of them. If it finds none, the transaction is refused; without ``mandatory`` it is dropped. ``ttl``
        counts from the commit.
        """
        given = publishing_headers(headers, ttl, priority)
        return self.send(target_of(exchange, mandatory), value, key_of(key), given, id=id, tags=tags)

    def celery(self, app: Any) -> Any:
        """Return what sends tasks of a Celery application with this: ``send_task`` and ``apply_async``, see
        ``txbroker.celery.Tasks``. It needs the blocking client; raises Misuse, and ImportError without
        Celery.
        """
        return import_module("txbroker.celery.sending").Tasks(app, self)
