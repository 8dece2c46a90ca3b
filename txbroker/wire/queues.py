"""The requests about queues, exchanges and bindings, and their answers (decision 0055).

Messages are published by a :class:`Send`, :class:`Add`, :class:`Prepare` or :class:`Commit` to the address of an
exchange, which stands where a partition does, and is negative: -2n for exchange number n, -2n - 1 if messages that find
no queue are to be dropped, not refused. A message's key is its routing key.

They are acknowledged by a :class:`CommitOffsets`, or in a transaction, for the group ``txbroker.queues``: what is
finished in the partition of the queue. What is ``retried`` there is returned.
"""

from __future__ import annotations

from typing import Final

import msgspec

from journal.records.queue_entries import Binding, ExchangeSettings, QueueSettings
from txbroker.wire.answers import Answer
from txbroker.wire.requests import Request

EXPIRATION: Final = "txbroker.expiration"
"""The header of a message that says how long it may be in a queue: µs, as decimal digits. A dead letter has none."""
PRIORITY: Final = "txbroker.priority"
"""The header of a message that says its priority: 0 to 255, as decimal digits."""
KEYS: Final = "txbroker.keys"
"""The header of a message with its further routing keys, as JSON: [[those that are told], [those that are not]]."""
DEATHS: Final = "txbroker.deaths"
"""The header of a dead letter with its deaths, as JSON: a list of [queue, cause, count, first, exchange, [key]], the
latest first.

Causes are "rejected", "delivery_limit", "expired" and "maxlen"; ``first`` is when it died so first, in µs since 1970.
"""
DELAY: Final = "x-delay"
"""The header of a message that says how long it waits at a delayed exchange: ms, as decimal digits. Behind that it says
the same with a minus in front.
"""
EXCHANGE: Final = "txbroker.exchange"
"""The header of a message that came over AMQP through an exchange with a name: that name."""
AMQP_PROPERTIES: Final = "txbroker.amqp"
"""The header of a message that came over AMQP: its properties, flags and values as they came."""
MAX_TAKEN: Final = 4096
"""Most messages of one answer."""
MAX_LISTED: Final = 1000
"""Most queues or exchanges of one answer."""


class DeclareQueue(Request, frozen=True, tag=62):
    """Have a queue. Answered by :class:`QueueDeclared`. If it is there, its settings must be these.

    With ``passive`` it is only asked whether it is there, whatever its settings are.
    """

    name: str
    settings: QueueSettings = QueueSettings()
    passive: bool = False

    @property
    def since(self) -> int:  # type: ignore[override]  # of most kinds it is the same for all
        """Version 4 knows strategies of dead letters, and arguments: an older broker passes over these, as it always
        did.
        """
        return 4 if self.settings.dead_letter_strategy else 3


class DeleteQueue(Request, frozen=True, tag=63):
    """Delete the queue of that name and partition with its messages. Answered by :class:`Counted`: how many there were.

    With ``if_empty`` only one without messages, with ``if_unused`` only one that has no consumer, and that nobody waits
    at, or has messages of.
    """

    name: str
    partition: int
    if_empty: bool = False
    if_unused: bool = False


class PurgeQueue(Request, frozen=True, tag=64):
    """Finish the messages of a queue that could be got now, with those that were accepted before. Answered by
    :class:`Counted`.
    """

    name: str


class DeclareExchange(Request, frozen=True, tag=65):
    """Have an exchange. Answered by :class:`ExchangeDeclared`; as :class:`DeclareQueue`."""

    name: str
    settings: ExchangeSettings
    passive: bool = False


class DeleteExchange(Request, frozen=True, tag=66):
    """Delete the exchange of that name and number, and all bindings from it and to it. Answered by :class:`Done`.

    With ``if_unused`` only one that has no bindings to anything.
    """

    name: str
    number: int
    if_unused: bool = False


class Bind(Request, frozen=True, tag=67):
    """Have a binding. Answered by :class:`Done`."""

    binding: Binding


class Unbind(Request, frozen=True, tag=68):
    """Have no such binding. Answered by :class:`Done`."""

    binding: Binding


class TakeMessages(Request, frozen=True, tag=69):
    """Take up to ``most`` ready messages of a queue, ``max_bytes`` of them at most but at least one. Answered by
    :class:`Taken` with frames as data: at once if there are some, else when there are, at last after ``max_wait`` µs.

    They are this session's until they are acknowledged, returned or given back, or until it ends. ``consumer`` is the
    number of one of this session's consumers of the queue, for which they are taken, 0 for none.
    """

    partition: int
    most: int = 1
    max_bytes: int = 1 << 20
    max_wait: int = 0
    consumer: int = 0


class GiveBack(Request, frozen=True, tag=70):
    """Give messages back that this session has, as if they had not been taken; others are passed over. No answer.

    ``offsets`` is a set of offsets relative to ``base``. With ``counted`` an attempt is counted for each of them.
    """

    partition: int
    offsets: bytes
    base: int
    counted: bool = False


class ListQueues(Request, frozen=True, tag=71):
    """List the queues of these names, or all. Answered by :class:`Queues`, in the order of their names.

    Of all, those behind ``after``; ``limit`` is 1,000 at most.
    """

    names: list[str] | None = None
    after: str = ""
    limit: int = MAX_LISTED


class ListExchanges(Request, frozen=True, tag=72):
    """List the exchanges of these names, or all. Answered by :class:`Exchanges`; as :class:`ListQueues`.

    With ``bindings`` each comes with its bindings.
    """

    names: list[str] | None = None
    after: str | None = None
    limit: int = MAX_LISTED
    bindings: bool = False


class Consume(Request, frozen=True, tag=73):
    """Make a consumer of a queue known, whose number the client chooses: from 1 on, unique in its session. Answered by
    :class:`Done`.

    It lasts until :class:`StopConsuming`, or the end of the session or the queue. One that is ``exclusive`` is the only
    one of its queue. Requests for consumers of a higher ``priority`` are served first while they wait.
    """

    partition: int
    consumer: int
    exclusive: bool = False
    priority: int = 0


class StopConsuming(Request, frozen=True, tag=74):
    """End a consumer of this session, if there is one of that number. Answered by :class:`Done`.

    Requests for it that wait are answered before that, without messages. What it has taken stays the session's.
    """

    consumer: int


class TakeOver(Request, frozen=True, tag=75):
    """Take a delivery over from the session that has it, by its lease. Answered by :class:`TakenOver`.

    It is this session's then, as if it had taken it; the other cannot acknowledge or return it any more. Refused with
    DeliveryLost if it has come to its end, and with AccessDenied if the sessions have different principals.
    """

    lease: bytes


class QueueDeclared(Answer, frozen=True, tag=103):
    """Answers :class:`DeclareQueue`: the number of the queue's partition, how many messages are ready with those that
    were accepted before the request, and how many consumers it has.
    """

    partition: int
    ready: int
    consumers: int = 0


class Counted(Answer, frozen=True, tag=104):
    """How many messages a request has ended."""

    messages: int


class ExchangeDeclared(Answer, frozen=True, tag=105):
    """Answers :class:`DeclareExchange`: the number of the exchange."""

    number: int


class Taken(Answer, frozen=True, tag=106):
    """Answers :class:`TakeMessages`. The frames are those of ``runs``, (first offset, how many), in their order.

    ``attempts`` are how often those of them were returned that were: (offset, attempts). Those of ``redelivered``,
    (first offset, how many), may have been delivered before.
    """

    partition: int
    runs: list[tuple[int, int]] = []  # noqa: RUF012  (a struct's)
    attempts: list[tuple[int, int]] = []  # noqa: RUF012
    redelivered: list[tuple[int, int]] = []  # noqa: RUF012


class TakenOver(Answer, frozen=True, tag=109):
    """Answers :class:`TakeOver`: where the message is, how often it was returned, and the name of its queue."""

    partition: int
    offset: int
    attempts: int
    queue: str


class QueueInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A queue. Of its ``messages``, which are not finished, ``ready`` can be got, sessions have ``unacknowledged``,
    prepared transactions hold ``held``; the others are due later.

    ``bytes`` is what its log takes, ``ready_bytes`` what the bodies of those take that can be got; nil if they are not
    bounded (``max_length_bytes``), or not measured yet after a start. ``oldest`` is how long ago the oldest of its
    messages came, in µs, -1 if there is none or it cannot be read. ``waiting`` is how many requests
    wait for messages, ``consumers`` how many consumers it has.
    """

    name: str
    partition: int
    settings: QueueSettings
    messages: int
    ready: int
    unacknowledged: int
    held: int
    bytes: int
    oldest: int
    waiting: int
    consumers: int = 0
    ready_bytes: int | None = None


class Queues(Answer, frozen=True, tag=107):
    """Answers :class:`ListQueues`. ``next`` is what the next request is to have as ``after``, None at the end."""

    queues: list[QueueInfo]
    next: str | None = None
    is_filtered: bool = False


class ExchangeInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An exchange, and how many messages were sent to it without a transaction. ``bindings`` are empty unless they were
    asked for. So many messages are ``waiting`` at it for their time.
    """

    name: str
    number: int
    settings: ExchangeSettings
    taken: int
    bindings: list[Binding] = []
    waiting: int = 0


class Exchanges(Answer, frozen=True, tag=108):
    """Answers :class:`ListExchanges`. ``next`` as in :class:`Queues`."""

    exchanges: list[ExchangeInfo]
    next: str | None = None
    is_filtered: bool = False
