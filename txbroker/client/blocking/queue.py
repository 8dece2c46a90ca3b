"""The blocking client's queues, and what its connection does with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from threading import get_ident
from types import TracebackType
from typing import Any, Self

from journal.due_time import After
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from txbroker.client.blocking.driver import Driver
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.results import Message, Receipt
from txbroker.client.core.waits import until
from txbroker.client.producer.exchange_queue import target_of
from txbroker.client.queues.client_queue import ClientQueue
from txbroker.client.queues.publishing import key_of, publishing_headers
from txbroker.client.queues.queue_reader import QueueReader
from txbroker.errors import Misuse


class Queue(ClientQueue):
    """A queue that is read: iterate, or :meth:`get`. It is a context manager, which closes it.

    Who iterates is a consumer of the queue until it is closed: the queue is in use, and goes with its last consumer if
    it was declared so. It is for one thread at a time. Iteration ends when it is closed. What was taken and is neither
    acknowledged nor returned is given to others when it is closed.
    """

    def __init__(self, connection: Any, core: QueueReader) -> None:
        self._connection, self._core = connection, core
        self._driver: Driver = connection._driver
        self._delivery: Delivery | None = None
        self._inside = 0
        """The thread that waits for messages."""

    def get(self, timeout: float | None = None) -> Message | None:
        """Take the next message; None if ``timeout`` seconds (None: without end) pass without any.

        With a ``timeout`` of 0 the broker is asked once, and a message that is there comes. It is this connection's
        until it is acknowledged or returned. Raises UnknownQueue, WrongType, WrongValue, and Misuse if another thread
        waits here.
        """
        return self._next(until(self._driver.core.clock, timeout))

    def _next(self, end: float) -> Message | None:
        current = self._delivery
        if current is not None and (found := current.one()) is not None:
            return found  # without the driver, which takes 40 µs
        me = get_ident()
        if self._inside not in (0, me):
            raise Misuse(
                f"two threads wait for messages of the same Queue of {self.name!r}; nothing was taken. Give each "
                "thread a queue of its own"
            )
        try:
            self._inside = me
            while (delivery := self._driver.delivery(self._core, end)) is not None and delivery.is_empty:
                pass
        finally:
            self._inside = 0
        if delivery is None:
            return None
        self._delivery = delivery
        return delivery.one()  # nothing may come between this line and the caller

    def __iter__(self) -> Iterator[Message]:
        self._core.consume()
        while not self.closed and (message := self._next(math.inf)) is not None:
            yield message

    def close(self, failed: bool = False) -> None:
        """Take nothing more, and give back what was taken and is neither acknowledged nor returned.

        ``failed``: an attempt is counted for each message that was handed out.
        """
        if not self._driver.is_forked:
            with self._driver.lock:
                self._core.close(failed)
                self._driver.push()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)


class QueueUse:
    """The methods of the blocking client's connection about queues, beside those of all clients."""

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
    ) -> Receipt:
        """Send a message through an exchange to the queues that its bindings find; it is in all of them once this
        ends. "" is the exchange that sends to the queue whose name is the key.

        After ``ttl`` (seconds, or a ``timedelta``) in a queue it has expired: nobody gets it any more, and it goes to
        the queue's dead-letter exchange, if that has one. Of a queue with ``max_priority`` messages of a higher
        ``priority`` (0 to 255) are got first. If it finds no queue, Unroutable is raised; without
        ``mandatory`` it is dropped. Raises UnknownExchange, and QueueFull if a queue takes no more.
        """
        receipt: Receipt = self.send(
            target_of(exchange, mandatory), value, key_of(key), publishing_headers(headers, ttl, priority), id=id,
            tags=tags,
        )  # fmt: skip
        return receipt

    def queue(
        self: Any, name: str, prefetch: int = 1, *, priority: int = 0, exclusive: bool = False
    ) -> Queue:
        """Return a queue for reading. Up to ``prefetch`` messages are taken from the broker at a time.

        While several wait, those of a higher ``priority`` are served first. One that is ``exclusive`` is the only
        consumer of its queue, else QueueInUse is raised. With either, ``get`` makes it a consumer, too.
        """
        return Queue(self, QueueReader(self.core, name, prefetch, priority, exclusive))
