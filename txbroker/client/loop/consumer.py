"""The consumer of both event loops."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self, cast

from txbroker.client.consumer.client_consumer import ClientConsumer
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery, checked_most
from txbroker.client.consumer.notices import Notice
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
        self._telling: Notice | None = None
        if core.notices is not None:
            core.on_notice = self._tell_soon

    @taking_method
    def poll(self, timeout: float = 0.0, max_messages: int | None = None) -> Awaitable[list[Message]]:
        """Return the next messages, of one partition; an empty list if ``timeout`` seconds pass without any.

        ``max_messages`` is as in the blocking client.
        """
        clock = self._connection.core.clock

        def begin() -> Take[list[Message]]:
            hand_out = partial(self._some_of, checked_most(max_messages))
            if self._tells:
                self._tell_begun(None)
            return Take(self._core, until(clock, timeout), hand_out)

        return self._connection.take(begin)

    def _tell_soon(self) -> None:
        self._connection.core.waits.soon(self._tell)

    def _tell(self) -> None:
        """Call ``on_revoked`` and ``on_lost``, one call after the other; one may be a coroutine function."""
        notices = self._core.notices
        if notices is None or self._telling is not None:
            return
        self._telling = notices.next()
        if self._telling is not None:
            self._connection._call_user(self._telling.call, self._told)

    def _told(self) -> None:
        """Note that the call has ended, whatever its end was."""
        notice, self._telling = self._telling, None
        if notice is not None and self._core.notices is not None:
            self._core.notices.called(notice)
            self._core.see_to_handover()
            self._tell_soon()
            self._connection._settle()

    def _at_once(self, work: Callable[[], None]) -> None:
        self._connection._check_process()
        work()
        self._connection._settle()

    def close(self) -> None:
        """Stop reading; this commits nothing."""
        self._core.close()
        self._connection._settle()  # that it leaves its group

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        current = self._core.current
        if current is not None and self._core.line.is_free:
            if self._tells:
                self._tell_begun(current)
            return cast(Message, current.one())  # most messages are here: no turn of the loop for them
        if self._tells:
            self._tell_begun(None)
        message = await self._connection.take(lambda: Take(self._core, math.inf, self._one_of))
        if message is None:
            raise StopAsyncIteration
        return message

    def _one_of(self, delivery: Delivery | None) -> Message | None:
        if self._tells:
            self._tell_begun(delivery)
        return one_of(delivery)

    def _some_of(self, most: int | None, delivery: Delivery | None) -> list[Message]:
        if self._tells:
            most = self._tell_begun(delivery, most)
        return [] if delivery is None else delivery.some(most)

    def _tell_begun(self, delivery: Delivery | None, most: int | None = 1) -> int:
        """Tell the broker what the caller begins with, before it does; return how many messages these are."""
        count = self._begins(delivery, most)
        self._connection._settle()
        return count
