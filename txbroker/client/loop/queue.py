"""The queues of both event loops' clients, and what their connections do with them."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Self

from journal.due_time import After
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from txbroker.client.core.results import Message, Receipt
from txbroker.client.core.waits import until
from txbroker.client.loop.loop_method import Take, loop_method, one_of, taking_method
from txbroker.client.producer.exchange_queue import target_of
from txbroker.client.queues.client_queue import ClientQueue
from txbroker.client.queues.publishing import key_of, publishing_headers
from txbroker.client.queues.queue_reader import QueueReader


class LoopQueue(ClientQueue):
    """A queue that is read: :meth:`get`, or ``async for``. It is an async context manager, which closes it.

    Who iterates is a consumer of the queue until it is closed; see the blocking client's. What was taken and is neither
    acknowledged nor returned is given to others when it is closed.
    """

    _connection: Any

    def __init__(self, connection: Any, core: QueueReader) -> None:
        self._connection, self._core = connection, core

    @taking_method
    def get(self, timeout: float | None = None) -> Awaitable[Message | None]:
        """Take the next message; see the blocking client's."""
        found: Awaitable[Message | None] = self._connection.take(
            lambda: Take(self._core, until(self._core.core.clock, timeout), one_of)
        )
        return found

    def close(self, failed: bool = False) -> None:
        """Take nothing more, and give back what was taken and is not settled; see the blocking client's."""
        if not self._connection.is_forked:
            self._core.close(failed)
            self._connection._settle()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self.closed:
            raise StopAsyncIteration
        self._core.consume()
        found: Message | None = await self._connection.take(lambda: Take(self._core, math.inf, one_of))
        if found is None:
            raise StopAsyncIteration
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)


class LoopQueueUse:
    """The methods of a loop's connection about queues, beside those of all clients."""

    @loop_method
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
    ) -> Awaitable[Receipt]:
        """Send a message through an exchange; see the blocking client's."""
        found: Awaitable[Receipt] = self.send(
            target_of(exchange, mandatory), value, key_of(key), publishing_headers(headers, ttl, priority), id=id,
            tags=tags,
        )  # fmt: skip
        return found

    def queue(
        self: Any, name: str, prefetch: int = 1, *, priority: int = 0, exclusive: bool = False
    ) -> LoopQueue:
        """Return a queue for reading; see the blocking client's."""
        return LoopQueue(self, QueueReader(self.core, name, prefetch, priority, exclusive))
