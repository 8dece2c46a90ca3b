"""The worker of the Twisted client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from txbroker.client.core.promise import Promise
from txbroker.client.loop.consumer import LoopConsumer
from txbroker.client.twisted import Connection
from txbroker.databases.twisted import run_atomic
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
        self._job = checked_job(topics, group, handler, choices, pools=True)
        self._face = TwistedFace(connection, self._job)
        self._core = WorkerCore(self._face, self._job)

    def run(self) -> Deferred[None]:
        """Work until :meth:`stop` is called, the handler fails (``retry=False``), or the topics end.

        Handlers and hooks may return a Deferred or a coroutine. With a pool of ``adbapi`` as ``transaction`` the
        handler is called in a thread of the pool, with the message, the block and a cursor. The Deferred fires as
        :meth:`run` of the blocking client returns and raises. If it is cancelled, those of the handler's calls are
        cancelled too, and nothing more is finished.
        """
        return Deferred.fromCoroutine(self._work())

    def _begin(self, work: Coroutine[Any, Any, None]) -> Deferred[None]:
        return Deferred.fromCoroutine(work)

    async def _all(self, tasks: list[Any]) -> None:
        await DeferredList(tasks, consumeErrors=True)

    def _caller(self) -> TwistedCaller:
        return TwistedCaller(self._connection, self._job)


class TwistedFace(LoopFace):
    """The Twisted client, as a worker uses it."""

    _connection: Connection

    def soon(self, call: Callable[[], object]) -> None:
        """Make a call in a later turn of the loop."""
        self._connection._reactor.callLater(0, call)

    async def tell_begun(self) -> None:
        """Tell the broker which messages are being handled. The reactor writes it in its next turn, which is waited
        for: what the handler does may let no other one come.
        """
        await super().tell_begun()
        promise: Promise[None] = Promise()
        self.soon(lambda: promise.resolve(None))
        await self.run(self._woken(promise, None))

    def consume(self) -> LoopConsumer:
        """Return a consumer for the job."""
        return self._connection.consume(self._job.topics, self._job.group, **self._job.reading)


class TwistedCaller(LoopCaller):
    """Calls the handler on the reactor's thread, or in a thread of a pool of database connections."""

    async def within(self, awaitable: Any, seconds: float | None) -> None:
        """Wait for a call of the handler; cancel it after so many seconds, and raise HandlerTimedOut."""
        found = awaitable if isinstance(awaitable, Deferred) else Deferred.fromCoroutine(awaitable)
        if seconds is not None:

            def cancelled(result: Any, after: float) -> Any:  # noqa: ARG001
                """Called if the time was over; what the handler made of its cancellation does not matter."""
                return Failure(too_long(seconds))

            found.addTimeout(seconds, self.connection._reactor, cancelled)
        await found

    async def attempt(self, attempt: Attempt) -> None:
        """Call the handler, within its transaction if it has one."""
        pool = self.job.options.transaction
        if pool is None or pool == "broker":
            await self.attempt_without_database(attempt)
            return
        await run_atomic(pool, self.connection, self._interact, attempt)

    def _interact(self, cursor: Any, tx: Any, attempt: Attempt) -> None:
        what = attempt.messages if self.job.options.batch > 1 else attempt.messages[0]
        attempt.called()
        try:
            self.job.handler(what, tx, cursor)
        except BaseException as error:
            attempt.returned()
            attempt.raised = error
            raise
        attempt.returned()
        for message in attempt.messages:
            tx.done(message, attempt.consumer)
        attempt.check()
        attempt.ask = lambda: self.connection.wait_outcome(tx.xid)
