"""The common part of every client's queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from journal.arguments import truth
from journal.due_time import After
from txbroker.client.core.client_method import part_method
from txbroker.client.core.results import Message
from txbroker.client.queues.queue_reader import QueueReader, after_of


class ClientQueue:
    """A queue that is read: messages are taken one by one, and acknowledged or returned."""

    _connection: Any
    _core: QueueReader

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._core.name

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._core.closed

    @part_method
    async def ack(self, message: Message | Sequence[Message]) -> None:
        """Acknowledge a message, or each of a list: it is gone from the queue once this ends.

        Raises DeliveryLost if the message was given to others since; Misuse for one that is not of this queue.
        """
        await self._core.settle(message)

    @part_method
    async def nack(
        self,
        message: Message | Sequence[Message],
        requeue: bool = True,
        after: After | None = None,
        why: str = "",
    ) -> None:
        """Return a message, or each of a list: it comes again, at once or ``after`` seconds or a ``timedelta``.

        An attempt is counted. Without ``requeue``, or if the queue's limit of deliveries is reached, it goes to the
        queue's dead-letter exchange; if there is none, it is gone. ``why`` is kept with it. Raises as :meth:`ack`.
        """
        truth("requeue", requeue, "nothing was returned")
        await self._core.settle(message, (after_of(after), why, not requeue))
