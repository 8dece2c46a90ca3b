"""The parts of records that say what queues, exchanges and bindings there are (decision 0055)."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final

import msgspec

from journal.formats.checkpoint_rows import Count
from journal.records.group_entries import LONGEST_EXPIRY

MAX_NAME_BYTES: Final = 255
"""Most bytes of UTF-8 of the name of a queue or an exchange, and of a routing key."""
QUEUE_TOPIC_PREFIX: Final = "txbroker.queue."
"""The beginning of the names of the topics that have the messages of queues; behind it is the partition's number."""
QUEUE_GROUP: Final = "txbroker.queues"
"""The consumer group that has finished what was acknowledged in all queues."""
QUEUE_GROUP_ID: Final = b"txbroker.queues."

WAITING_QUEUE_PREFIX: Final = "amq.delayed."
"""The beginning of the names of the broker's own queues that have what is to wait at exchanges; behind it is the
exchange's number. No client declares, names or sees one.
"""

DEFAULT_EXCHANGE: Final = 1
"""The number of the exchange without a name, which sends each message to the queue that its key names."""
DEFAULT_EXCHANGE_NAME: Final = "amq.default"
"""What rules and errors call the exchange without a name."""


def address_of(exchange: int, mandatory: bool) -> int:
    """Return what a send names in the place of a partition: an exchange, and whether each message must find a queue."""
    return -2 * exchange - (not mandatory)


def exchange_of(address: int) -> int:
    """Return the number of the exchange at an address, which is negative."""
    return -address >> 1


def is_mandatory(address: int) -> bool:
    """Return whether messages that find no queue are refused, not dropped."""
    return not address & 1


def waiting_queue_of(exchange: int) -> str:
    """Return the name of the queue that has what is to wait at the exchange of that number (decision 0066)."""
    return f"{WAITING_QUEUE_PREFIX}{exchange}"


def is_waiting_queue(name: str) -> bool:
    """Return whether that is the name of such a queue."""
    return name.startswith(WAITING_QUEUE_PREFIX)


Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
Scalar = bytes | int | float | bool | None
"""A value of an argument; text is its UTF-8."""


class Choice(IntEnum):
    """A setting that is one of several words."""

    @property
    def word(self) -> str:
        """What people and programs call it."""
        return self.name.lower().replace("_", "-")


class ExchangeKind(Choice):
    """How an exchange chooses among its bindings."""

    DIRECT = 0
    """Those whose key is the message's."""
    FANOUT = 1
    """All of them."""
    TOPIC = 2
    """Those whose pattern matches the words of the message's key, which dots separate: ``*`` is one word, ``#`` any
    number of them, also none.
    """
    HEADERS = 3
    """Those whose arguments match the message's headers."""
    DEFAULT = 4
    """None: a message goes to the queue that the exchange's name and the message's key together name. The broker makes
    such ones, for virtual hosts of AMQP.
    """


PREDECLARED: Final = {
    "": ExchangeKind.DIRECT,
    "amq.direct": ExchangeKind.DIRECT,
    "amq.fanout": ExchangeKind.FANOUT,
    "amq.topic": ExchangeKind.TOPIC,
    "amq.headers": ExchangeKind.HEADERS,
    "amq.match": ExchangeKind.HEADERS,
}
"""The exchanges that are there from the start, in the order of their numbers from 1 on."""


class Binding(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What lets an exchange send messages to a queue, or with ``to_exchange`` to another exchange.

    ``arguments``, sorted by name, are what is compared with the headers of messages by an exchange of that kind; others
    keep them. ``x-match`` among them is "all" (the default), "any", "all-with-x" or "any-with-x".
    """

    exchange: Name
    key: Name
    destination: Name
    to_exchange: bool = False
    arguments: tuple[tuple[str, Scalar], ...] = ()


class ExchangeSettings(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How an exchange was declared. One that is ``internal`` takes messages from other exchanges alone.

    One with ``auto_delete`` is deleted when its last binding has gone. What has no way is sent to the ``alternate``
    exchange, if there is one of that name. One that is not ``durable`` is deleted at the broker's next start. With
    ``delayed`` a message that is to wait is sent on when its time has come.
    """

    kind: ExchangeKind
    internal: bool = False
    auto_delete: bool = False
    alternate: Name | None = None
    durable: bool = True
    delayed: bool = False


class Overflow(Choice):
    """What becomes of messages that are more than a queue may have."""

    DROP_HEAD = 0
    """The oldest that can be got end."""
    REJECT_PUBLISH = 1
    """Those that come are refused."""


class DeadLetterStrategy(Choice):
    """What becomes of a dead letter for which a queue has no room, because that one refuses what would be too much."""

    AT_MOST_ONCE = 0
    """It is dropped, from that queue."""
    AT_LEAST_ONCE = 1
    """It stays in its own queue, where nobody gets it any more, until there is room."""


MAX_PRIORITY: Final = 255
"""The highest priority that a message of a queue may have."""
Priority = Annotated[int, msgspec.Meta(ge=0, le=MAX_PRIORITY)]
Duration = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_EXPIRY)]
"""µs, ten years at most."""
MAX_ARGUMENT_BYTES: Final = 4096
"""Most bytes of the arguments of a declaration that are no settings."""
Arguments = Annotated[bytes, msgspec.Meta(max_length=MAX_ARGUMENT_BYTES)]


class QueueSettings(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a queue was declared.

    ``delivery_limit`` is how often a message may be returned before it is a dead letter (None: without end).
    ``dead_letter_exchange`` takes those (None: they are dropped), with ``dead_letter_key`` in place of their own key.
    A message that is in the queue for ``message_ttl`` µs has expired, and is a dead letter. The queue has at most
    ``max_length`` messages that can be got, and their bodies at most ``max_length_bytes``; with ``overflow`` DROP_HEAD
    those that are too many are dead letters. The queue is deleted when it was not used for ``expires`` µs. One that is
    ``exclusive`` is for the session that has declared it, and is deleted after its end. One with ``auto_delete`` is
    deleted when its last consumer has ended. One that is exclusive or not ``durable`` is *transient*: it ends with the
    broker's process, and is in no file that a start reads. With
    ``single_active`` one of its consumers gets messages, until it ends; then another one. Messages have priorities from
    0 to ``max_priority``, each in a log of its own. A session that has a message for longer than ``consumer_timeout``
    µs without acknowledging it loses it. With the ``dead_letter_strategy`` AT_LEAST_ONCE a dead letter for which a
    queue has no room waits for it. ``arguments`` are those of a declaration over AMQP that are no settings, as the
    fields of an AMQP table without its length; None if the queue was not declared so. They are kept, and not compared.
    """

    delivery_limit: Count | None = None
    dead_letter_exchange: Name | None = None
    dead_letter_key: Name | None = None
    message_ttl: Duration | None = None
    max_length: Count | None = None
    overflow: Overflow = Overflow.DROP_HEAD
    expires: Duration | None = None
    exclusive: bool = False
    auto_delete: bool = False
    durable: bool = True
    single_active: bool = False
    max_priority: Priority = 0
    max_length_bytes: Count | None = None
    consumer_timeout: Duration | None = None
    dead_letter_strategy: DeadLetterStrategy = DeadLetterStrategy.AT_MOST_ONCE
    arguments: Arguments | None = None

    @property
    def is_transient(self) -> bool:
        """Whether it ends with the broker's process at the latest, so that nothing of it needs to be on disk."""
        return self.exclusive or not self.durable


class Queue(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A queue, as the record that makes its topic has it."""

    name: Name
    settings: QueueSettings
