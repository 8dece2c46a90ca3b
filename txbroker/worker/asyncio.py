"""The worker of the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from txbroker.client.asyncio import Connection
from txbroker.client.loop.consumer import LoopConsumer
from txbroker.databases.asyncio import atomic
from txbroker.worker.core import WorkerCore
from txbroker.worker.face import Attempt
from txbroker.worker.failures import too_long
from txbroker.worker.loop import LoopCaller, LoopFace, LoopWorker
from txbroker.worker.options import checked_job


class Worker(LoopWorker):
    """A worker that ``Connection.work`` has made. It runs once."""

    _connection: Connection

    def __init__(self, connection: Connection, topics: Any, group: Any, handler: Any, **choices: Any) -> None:
        self._connection = connection
        self._job = checked_job(topics, group, handler, choices)
        self._face = AsyncioFace(connection, self._job)
        self._core = WorkerCore(self._face, self._job)

    async def run(self) -> None:
        """Work until :meth:`stop` is called, the handler fails (``retry=False``), or the topics end.

        Handlers may be coroutine functions, and so may be the hooks and what opens a database. It returns and raises as
        that of the blocking client does. If it is cancelled, the calls of the handler are cancelled too, and nothing
        more is finished.
        """
        await self._work()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(work)

    async def _all(self, tasks: list[Any]) -> None:
        if tasks:
            await asyncio.wait(tasks)

    def _caller(self) -> AsyncioCaller:
        return AsyncioCaller(self._connection, self._job)


class AsyncioFace(LoopFace):
    """The asyncio client, as a worker uses it."""

    _connection: Connection

    def soon(self, call: Callable[[], object]) -> None:
        """Make a call in a later turn of the loop."""
        self._connection._loop.call_soon(call)

    def consume(self) -> LoopConsumer:
        """Return a consumer for the job."""
        return self._connection.consume(self._job.topics, self._job.group, **self._job.reading)


class AsyncioCaller(LoopCaller):
    """Calls the handler in a task."""

    async def within(self, awaitable: Any, seconds: float | None) -> None:
        """Wait for a call of the handler; cancel it after so many seconds, and raise HandlerTimedOut."""
        try:
            async with asyncio.timeout(seconds) as limit:
                await awaitable
        except TimeoutError as error:
            if not limit.expired():
                raise  # the handler's own
            raise too_long(seconds) from error

    async def attempt(self, attempt: Attempt) -> None:
        """Call the handler, within its transaction if it has one."""
        opens = self.job.options.transaction
        if opens is None or opens == "broker":
            await self.attempt_without_database(attempt)
            return
        if self.database is None:
            self.database = await self.ended(opens())
        async with atomic(self.database, self.connection) as block:
            await self.call_within(attempt, block, self.database)
            attempt.ask = lambda: self.connection.wait_outcome(block.xid)
