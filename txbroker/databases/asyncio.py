"""``atomic`` for asyncio: ``async with``, psycopg's AsyncConnection, and the asyncio client.

A blocking database connection works too, and blocks the loop while it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from journal.scheduled_id import ScheduledId
from txbroker import errors
from txbroker.client.asyncio import Connection, Transaction
from txbroker.client.core.positions import Finishes
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message, Receipt
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.databases.adapters.adapter import adapt, kind_of
from txbroker.databases.adapters.database import Connector
from txbroker.databases.block import Block, BrokerSide
from txbroker.databases.open_blocks import Place
from txbroker.databases.outbox.streams import Backlog
from txbroker.databases.outbox.terms import AUTO_MODE, OUTBOX_BYTES, OutboxTerms
from txbroker.databases.protocol import Deciding, check_wait

T = TypeVar("T")


def atomic(
    database: Any,
    broker: Connection,
    *,
    application: str = "",
    wait: str = "decision",
    timeout: float | None = None,
    connect_database: Connector | None = None,
    mode: str = AUTO_MODE,
    outbox_bytes: int = OUTBOX_BYTES,
    max_backlog: Backlog | None = None,
    on_refused: str = "move",
) -> AsyncAtomic:
    """Return an ``async with`` that commits rows and messages together.

    The arguments are those of :func:`txbroker.atomic`. ``connect_database`` opens *blocking* connections, because the
    resolver works in its own thread.
    """
    check_wait(wait)
    if not isinstance(broker, Connection):
        raise errors.WrongType(
            f"{kind_of(broker)} is no connection of txbroker.client.asyncio; nothing was done"
        )
    side = AsyncSide(broker, wait, timeout, OutboxTerms(mode, outbox_bytes, max_backlog, on_refused))
    deciding = Deciding(adapt(database), side, application)
    deciding.to_the_end = to_the_end
    return AsyncAtomic(deciding, side, connect_database)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work in a task: if cancelled meanwhile, wait until the work has ended, then be cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # so that it counts as retrieved
        raise cancelled
    return task.result()


class AsyncSide(BrokerSide[Transaction]):
    """The broker's part of a block, over the asyncio client."""

    connection: Connection

    async def prepare(self) -> None:
        """Prepare; waiting messages are sent in the same write."""
        assert self.transaction is not None
        await self.transaction.prepare()

    async def _outside(self) -> list[tuple[PartitionQueue, bytes]] | None:
        assert self.transaction is not None
        return await self.transaction.outside()

    async def _wait(self, told: Promise[None]) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def resume() -> None:
            if not waiting.done():
                waiting.set_result(None)

        # A block that has left its messages in the database is told by the resolver's thread, perhaps when it is late.
        told.then(lambda: None if loop.is_closed() else loop.call_soon_threadsafe(resume))
        if told.done:
            told.finish()  # it may have been settled just when this was added
        async with asyncio.timeout(self._timeout):  # Python 3.11's wait_for may swallow a cancellation
            await waiting
        told.result()


class AsyncAtomic(Block[Transaction]):
    """A block of :func:`txbroker.databases.asyncio.atomic`. For one task."""

    _statement = "async with"

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        id: GivenId = None,
        tags: GivenTags = None,
        *,
        after: After | None = None,
        at: At | None = None,
    ) -> Receipt:
        """Send a message with the block; the receipt has no offset yet."""
        return await self._transaction().send(
            topic, value, key, headers, partition, timestamp, id, tags, after=after, at=at
        )

    async def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> list[ScheduledId]:
        """Take scheduled messages back with the block; see ``Transaction.cancel``. The block is two-phase then."""
        return await self._transaction().cancel(id, message_id=message_id)

    async def ack(self, message: Message | Sequence[Message]) -> None:
        """Acknowledge a message of a queue, or each of a list, with the block; see ``Transaction.ack``."""
        await self._transaction().ack(message)

    async def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive the group's next message with the block; see ``Transaction.receive``."""
        found: Message | None = await self._transaction().receive(topics, group, timeout, **choices)
        return found

    async def done(self, what: Message | Sequence[Message], consumer: Finishes | None = None) -> None:
        """Finish a message of a consumer, or each of a list, with the block; see ``Transaction.done``."""
        await self._transaction().done(what, consumer)

    async def __aenter__(self) -> Self:
        try:
            await self._enter(Place(asyncio.current_task()))
            return self
        except BaseException as error:
            await self.deciding.heal(error)  # does nothing if it has been ended
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.deciding.leave(error)
        except BaseException as failure:
            await self.deciding.heal(failure)
            raise
