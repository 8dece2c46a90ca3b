"""The blocking client's consumer: an iterator over messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from txbroker import errors
from txbroker.client.blocking.driver import Driver
from txbroker.client.consumer.client_consumer import ClientConsumer, Joins
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery, checked_most
from txbroker.client.consumer.notices import Notice, Notices
from txbroker.client.core.partitioner import check_asking
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message
from txbroker.client.core.waits import until

T = TypeVar("T")


class ConsumingConnection(Joins, Protocol):
    """The part of a connection that a consumer needs."""

    _driver: Driver

    def run(self, operation: Coroutine[Promise[Any], None, T], timeout: float | None = None) -> T:
        """Run an operation of the core."""


class Consumer(ClientConsumer):
    """A consumer, which gives messages as they come: iterate, or :meth:`poll`.

    It is for one thread at a time, but others may call ``done`` meanwhile; and it is a context manager. Iteration
    ends when the consumer is closed or, without ``follow``, at the end that the partitions had when it began. An error
    (no broker for longer than the timeout, for example) is raised once; iterating again continues.
    """

    _connection: ConsumingConnection

    def __init__(self, connection: ConsumingConnection, core: ConsumerCore) -> None:
        self._connection = connection
        self._driver = connection._driver
        self._is_of(core)
        self._iterator: Iterator[Message] | None = None
        self._is_telling = False
        self.closed = False

    def __iter__(self) -> Iterator[Message]:
        if self._iterator is None:
            self._iterator = self._messages()
        return self._iterator

    def __next__(self) -> Message:
        return next(iter(self))

    def _messages(self) -> Iterator[Message]:
        try:
            while delivery := self._delivery(math.inf):
                left, one, tells = delivery.left, delivery.left.popleft, self._tells
                with suppress(IndexError):  # withheld by another thread, between these two lines
                    while left and not self.closed:
                        if tells:
                            self._tell_begun(delivery)
                        yield one()
        finally:
            self._iterator = None

    def poll(self, timeout: float = 0.0, max_messages: int | None = None) -> list[Message]:
        """Return the next messages, of one partition; an empty list if ``timeout`` seconds pass without any.

        They are at most ``max_messages`` (None: all that are here). The next call has those that are left, and
        ``commit`` covers none of them. Raises WrongType, WrongValue.
        """
        most = checked_most(max_messages)
        end = until(self._driver.core.clock, timeout)
        while delivery := self._delivery(end):
            if self._tells:
                most = self._tell_begun(delivery, most)
            if not delivery.is_empty:  # nothing may come between the next line and the caller
                return delivery.some(most)
        return []

    def _tell_begun(self, delivery: Delivery | None, most: int | None = 1) -> int:
        """Tell the broker what the caller begins with, before it does; return how many messages these are."""

        def begin() -> int:
            count = self._begins(delivery, most)
            self._driver.kick()
            return count

        return self._driver.guarded(begin)

    def _delivery(self, end: float) -> Delivery | None:
        """Return the next delivery; None if none comes until ``end``. Meanwhile make the calls that are due to
        ``on_revoked`` and ``on_lost``: on this thread, because it is the one that handles messages.
        """
        notices = self._core.notices
        if self._tells and self._core.current is None:
            self._tell_begun(None)
        if notices is None:
            return self._driver.delivery(self._core, end)
        while True:
            self._tell(notices)
            delivery = self._driver.delivery(self._core, end)
            if delivery is not None or self._next_notice(notices) is None:
                return delivery

    def _next_notice(self, notices: Notices) -> Notice | None:
        with self._driver.lock:  # a thread that drives may release a partition
            return notices.next()

    def _tell(self, notices: Notices) -> None:
        while notice := self._next_notice(notices):
            if self._is_telling:
                raise errors.Misuse(
                    "reading inside of on_revoked or on_lost, which must return first; nothing was read"
                )
            self._is_telling = True
            try:
                notice.call()
            finally:
                try:
                    self._is_telling = False
                except BaseException:
                    self._is_telling = False  # an interrupt came in there: it is done again
                    raise
            with self._driver.lock:
                notices.called(notice)
                self._core.see_to_handover()
                self._driver.push()

    def _at_once(self, work: Callable[[], None]) -> None:
        self._driver.check_process()

        def do() -> None:
            work()
            self._driver.kick()

        self._driver.guarded(do)

    def close(self) -> None:
        """Stop reading. This commits nothing."""
        check_asking(self._driver.core.asking, self._driver.core.thread())
        self.closed = True
        if not self._driver.is_forked:
            with self._driver.lock:
                self._core.close()
                self._driver.push()  # that it leaves its group

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
