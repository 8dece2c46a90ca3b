"""The blocking client's consumer: an iterator over messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

from journal.formats.record import PartitionOffset
from txbroker.client.blocking.driver import Driver
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.core.partitioner import check_asking
from txbroker.client.core.positions import Joined, Positions
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message
from txbroker.client.core.waits import until

Run = Callable[[Coroutine[Promise[Any], None, None]], None]


class Consumer:
    """Messages as they come: iterate, or :meth:`poll`. For one thread at a time; a context manager.

    Iterating ends when the consumer is closed or, without ``follow``, at the end that the partitions had when
    it began. An error (no broker for longer than the timeout, say) is raised once; iterating again goes on.
    """

    def __init__(
        self, run: Run, driver: Driver, core: ConsumerCore, joined: Callable[[], Joined | None]
    ) -> None:
        self._run = run
        self._joined = joined
        self._driver = driver
        self._core = core
        self._iterator: Iterator[Message] | None = None
        self.closed = False

    @property
    def group(self) -> str:
        """The group's name, "" without one."""
        return self._core.options.group or ""

    @property
    def whole(self) -> bool:
        """Whether all was handed out that its partitions held at one moment: each transaction whole, or not at all.

        As far as it is in them, and as the positions that reading began at were. False while there is more to hand out,
        and while a position is held by an undecided transaction.
        """
        return self._core.whole

    def __iter__(self) -> Iterator[Message]:
        if self._iterator is None:
            self._iterator = self._messages()
        return self._iterator

    def __next__(self) -> Message:
        return next(iter(self))

    def _messages(self) -> Iterator[Message]:
        try:
            while delivery := self._driver.delivery(self._core, math.inf):
                left, whole, one = delivery.left, delivery.whole, delivery.left.popleft
                while left and whole and not self.closed:
                    yield one()
        finally:
            self._iterator = None

    def poll(self, timeout: float = 0.0) -> list[Message]:
        """The next messages, of one partition; none if ``timeout`` seconds pass before there are any."""
        delivery = self._driver.delivery(self._core, until(self._driver.core.clock, timeout))
        return [] if delivery is None else delivery.rest()

    def offsets(self) -> list[PartitionOffset]:
        """The positions after the messages handed out so far, for ``Transaction.commit_offsets``."""
        return self._core.handed_out()

    def commit(self, what: Positions = None) -> None:
        """Commit positions of the group; returns once forced. Between ``tpc_begin`` and its end they join that.

        ``what``: all that has been handed out so far (None), all up to a message in its partition, or a mapping of
        (topic, partition) to the next offset to read. Raises GenerationFenced if another consumer has claimed the
        partitions, Misuse without a group, WrongType, WrongValue.
        """
        self._run(self._core.commit(what, self._joined()))

    def close(self) -> None:
        """Stop reading; commits nothing."""
        check_asking(self._driver.core.asking, self._driver.core.thread())
        self.closed = True
        if not self._driver.is_forked:
            with self._driver.lock:
                self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
