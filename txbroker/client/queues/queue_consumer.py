"""A reader as a consumer of its queue: made known to the broker before its first take, again in each session."""

from __future__ import annotations

from functools import partial
from typing import Final

from journal.arguments import truth, whole
from txbroker import errors
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.phase import Phase
from txbroker.client.core.promise import ended
from txbroker.wire.messages import Consume, Done, StopConsuming

NOTHING_TAKEN: Final = "nothing was taken"
HIGHEST: Final = (1 << 31) - 1
"""The highest priority; the lowest is as far below 0."""


class QueueConsumer:
    """One that reads a queue. ``number`` is the one by which the broker knows it in this session; 0 if it does not."""

    def __init__(self, core: Core, priority: int, exclusive: bool) -> None:
        self._core = core
        self._priority = whole("priority", priority, NOTHING_TAKEN, least=-HIGHEST - 1, most=HIGHEST)
        self._exclusive = truth("exclusive", exclusive, NOTHING_TAKEN)
        self.is_wanted = exclusive or priority != 0
        """Whether the broker is to know of it."""
        self.number = 0
        self._call: Call[Done] | None = None
        """The request that makes it known, until it is answered."""

    async def register(self, partition: int) -> None:
        """Have the broker know of it, if it is wanted and not known; raises QueueInUse, UnknownQueue, LimitExceeded.

        A request that an interrupt has left is waited for, not sent again.
        """
        core = self._core
        while self.is_wanted and not self.number:
            if self._call is None:
                request = Consume(
                    core.correlation(), partition, core.correlation(), self._exclusive, self._priority
                )
                made = Call(request, Done, b"", core.clock() + core.options.timeout)
                made.then(partial(self._answered, made))
                self._call = made
            call = self._call
            if not (call.done or core.has(call)):
                core.submit(call)
            await ended(call)
            self._call = None
            if isinstance(call.error, errors.RequestTimedOut):
                self._stop(call.request)
            call.result()

    def _answered(self, call: Call[Done]) -> None:
        """Note in which session it is known, before that may end."""
        if call.error is None and isinstance(call.request, Consume):
            self.number = call.request.consumer

    def lost(self) -> None:
        """Forget what ended with the session."""
        self.number = 0

    def close(self) -> None:
        """Let the broker forget it."""
        call, self._call = self._call, None
        number, self.number, self.is_wanted = self.number, 0, False
        if number:
            self._say(number)
        elif call is not None and not call.done:
            self._core.give_up(call)
            self._stop(call.request)
            call.fail(errors.Misuse("the queue was closed before it was known that this reads it"))

    def _stop(self, request: object) -> None:
        """End what a request may have made known."""
        if isinstance(request, Consume):
            self._say(request.consumer)

    def _say(self, number: int) -> None:
        if self._core.phase is Phase.OPEN:
            self._core.post(StopConsuming(self._core.correlation(), number))
