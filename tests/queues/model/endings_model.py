"""The model of ends: when a message has expired, what a dead letter says of its deaths, and what goes in a circle.

As the decisions tell it, and RabbitMQ's documents of time to live, length limits and dead letter exchanges.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.queues.model.routing_model import Died, Message

REJECTED, LIMIT, EXPIRED, TOO_MANY = "rejected", "delivery_limit", "expired", "maxlen"
"""The causes of deaths."""
DROP_HEAD, REJECT_PUBLISH = range(2)
"""What becomes of messages that are too many, with the numbers of the wire protocol."""
AT_MOST_ONCE, AT_LEAST_ONCE = range(2)
"""What becomes of dead letters that a full queue refuses, with these numbers: they are dropped, or wait."""


class QueueRules(NamedTuple):
    """How a queue was declared. Times are in µs; None is for no such rule. ``timeout`` is how long a session may have a
    message without acknowledging it.
    """

    limit: int | None = None
    dead_exchange: str | None = None
    dead_key: str | None = None
    ttl: int | None = None
    most: int | None = None
    overflow: int = DROP_HEAD
    expires: int | None = None
    most_bytes: int | None = None
    max_priority: int = 0
    timeout: int | None = None
    strategy: int = AT_MOST_ONCE

    def in_micros(self) -> QueueRules:
        """Return them with times that were in seconds."""
        ttl, expires = (None if each is None else each * 1_000_000 for each in (self.ttl, self.expires))
        return self._replace(ttl=ttl, expires=expires)


def has_expired(message: Message, appended: int, rules: QueueRules, wall: int) -> bool:
    """Whether a message has been in its queue for as long as it, or the queue, allows."""
    lives = [each for each in (message.expiration, rules.ttl) if each is not None]
    return bool(lives) and appended + min(lives) <= wall


def died(message: Message, queue: str, cause: str) -> Message:
    """Return a message that has died once more: that death comes first, and its expiration is gone."""
    count = 1 + sum(each.count for each in message.deaths if each[:2] == (queue, cause))
    others = [each for each in message.deaths if each[:2] != (queue, cause)]
    return message._replace(deaths=(Died(queue, cause, count), *others), expiration=None)


def goes_through(message: Message, queue: str) -> bool:
    """Whether a message has died in a queue before."""
    return any(each.queue == queue for each in message.deaths)


def goes_round(message: Message, queue: str) -> bool:
    """Whether a dead letter that comes to a queue has died there, and nobody has rejected it since, nor then."""
    if not goes_through(message, queue):
        return False
    last = [each.queue for each in message.deaths].index(queue)
    since = message.deaths[: last + 1]
    return all(each.cause != REJECTED for each in since)
