"""``atomic`` for asyncio: ``async with``, psycopg's AsyncConnection, and the asyncio client.

A blocking database connection works too, and blocks the loop while it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from journal.transaction import State, Xid
from txbroker import errors
from txbroker.client.asyncio import Connection, Transaction
from txbroker.client.promise import start
from txbroker.client.results import Message, Receipt
from txbroker.databases.adapter import Connector, Database, adapt
from txbroker.databases.background import Background, background_beside
from txbroker.databases.deciding import Deciding, check_wait, delivery_pending


def atomic(
    database: Any,
    broker: Connection,
    *,
    application: str = "",
    wait: str = "decision",
    timeout: float | None = None,
    connect_database: Connector | None = None,
) -> AsyncAtomic:
    """One transaction for rows and messages, as an ``async with``; arguments as of :func:`txbroker.atomic`.

    ``connect_database`` opens *blocking* connections: the resolver works in a thread of its own.
    """
    check_wait(wait)
    if not isinstance(broker, Connection):
        raise errors.Misuse(
            f"{type(broker).__module__}.{type(broker).__qualname__} is no connection of txbroker.client.asyncio; "
            "nothing was done"
        )
    side = AsyncSide(broker, wait == "commit", broker.core.options.timeout if timeout is None else timeout)
    return AsyncAtomic(Deciding(adapt(database), side, application), side, connect_database)


class AsyncSide:
    """The broker's part of a block, over the asyncio client."""

    def __init__(self, connection: Connection, waits: bool, timeout: float) -> None:
        self.connection = connection
        self.transaction: Transaction | None = None
        self.background: Background | None = None
        self._waits = waits
        self._timeout = timeout

    @property
    def identity(self) -> str:
        """Of the broker's data; raises ProcessForked in a child process."""
        self.connection._check_process()
        return self.connection.identity

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent or received."""
        return self.transaction is None or self.transaction._core.is_empty

    def open(self, xid: Xid) -> None:
        """Begin."""
        self.transaction = self.connection.transaction(xid)

    async def prepare(self) -> None:
        """Prepare; the messages that wait here go out in the same write."""
        assert self.transaction is not None
        await self.transaction.prepare()

    async def commit(self, key: str) -> None:
        """Have it committed; wait for that if the caller chose to."""
        assert self.transaction is not None
        core = self.transaction._core
        core.received.settle(True)
        told = start(core.commit())
        self.connection._settle()
        if self.background is not None:
            self.background.track(told, key)
        if self._waits:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            told.then(lambda: None if waiting.done() else waiting.set_result(None))
            try:
                await asyncio.wait_for(waiting, self._timeout)
                told.result()
            except (errors.TxBrokerError, TimeoutError) as error:
                raise delivery_pending(error, self._timeout) from error

    async def rollback(self) -> None:
        """Have it rolled back."""
        if self.transaction is None:
            return
        core = self.transaction._core
        core.received.settle(False)
        if not self.connection.is_forked:
            told = start(core.rollback())
            self.connection._settle()
            if self.background is not None:
                self.background.track(told, "")

    def abandon(self) -> None:
        """What was received is read again, from where the group is when that is known."""
        if self.transaction is not None:
            self.transaction._core.received.discard()
        if self.background is not None:
            self.background.hurry()


class AsyncAtomic:
    """A block: what is sent and received in it becomes real together with the rows, or never. For one task."""

    def __init__(self, deciding: Deciding, side: AsyncSide, connect_database: Connector | None) -> None:
        self._deciding = deciding
        self._side = side
        self._connect_database = connect_database

    @property
    def xid(self) -> Xid | None:
        """Which transaction this is, once it has begun."""
        return self._deciding.xid

    @property
    def outcome(self) -> State:
        """ACTIVE, COMMITTED, ROLLED_BACK; PREPARED if it is not known how it ended."""
        return self._deciding.outcome

    @property
    def database(self) -> Database:
        """The adapter of the database connection."""
        return self._deciding.database

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Receipt:
        """Send a message with the block; the receipt has no offset yet."""
        return await self._open().send(topic, value, key, headers, partition, timestamp)

    async def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive the group's next message with the block; see ``Transaction.receive``."""
        found: Message | None = await self._open().receive(topics, group, timeout, **choices)
        return found

    def _open(self) -> Transaction:
        if self._side.transaction is None or self.outcome is not State.ACTIVE:
            raise errors.Misuse("this works inside of the block's `async with` only; nothing was sent")
        return self._side.transaction

    async def __aenter__(self) -> Self:
        background = self._side.background = background_beside(self._side.connection)
        await self._deciding.enter()
        try:
            found = self._deciding.identity
            assert found is not None
            if not background.knows(found.name):
                background.watch(found.name, self._connect_database or self.database.connector())
        except BaseException as error:
            await self._deciding.leave(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._deciding.leave(error)
