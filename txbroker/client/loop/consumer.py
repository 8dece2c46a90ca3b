"""The consumer of both event loops."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import Self, cast

from txbroker.client.consumer.client_consumer import ClientConsumer
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.results import Message
from txbroker.client.core.waits import until
from txbroker.client.loop.connection import LoopConnection
from txbroker.client.loop.loop_method import Take, one_of, taking_method


class LoopConsumer(ClientConsumer):
    """A consumer, which gives messages as they come: ``async for``, or :meth:`poll`. See the blocking client's."""

    _connection: LoopConnection

    def __init__(self, connection: LoopConnection, core: ConsumerCore) -> None:
        self._connection = connection
        self._is_of(core)

    @taking_method
    def poll(self, timeout: float = 0.0) -> Awaitable[list[Message]]:
        """Return the next messages, of one partition; an empty list if ``timeout`` seconds pass without any."""
        connection = self._connection
        return connection.take(lambda: Take(self._core, until(connection.core.clock, timeout), _rest_of))

    def close(self) -> None:
        """Stop reading; this commits nothing."""
        self._core.close()
        self._connection._settle()  # that it leaves its group

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        current = self._core.current
        if current is not None and self._core.line.is_free:
            return cast(Message, current.one())  # most messages are here: no turn of the loop for them
        message = await self._connection.take(lambda: Take(self._core, math.inf, one_of))
        if message is None:
            raise StopAsyncIteration
        return message


def _rest_of(delivery: Delivery | None) -> list[Message]:
    return [] if delivery is None else delivery.rest()
