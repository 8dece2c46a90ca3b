"""The worker of both event loops: a task for each part, and one for each call of the handler at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.positions import Finishes
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import GroupDescription, Message
from txbroker.client.loop.connection import LoopConnection
from txbroker.client.loop.consumer import LoopConsumer
from txbroker.client.loop.loop_method import Take
from txbroker.worker.core import WorkerCore
from txbroker.worker.face import Role
from txbroker.worker.hand import Caller
from txbroker.worker.options import Job

T = TypeVar("T")


class LoopFace(ABC):
    """A client of an event loop, as a worker uses it. All of it runs on the loop's thread, so no lock is needed."""

    lock: AbstractContextManager[Any] = nullcontext()

    def __init__(self, connection: LoopConnection, job: Job) -> None:
        self._connection = connection
        self._job = job
        self._consumer: LoopConsumer | None = None
        self._waiting: dict[Role, deque[Promise[None]]] = {role: deque() for role in Role}
        self.over: Promise[None] = Promise()
        """Settled at the end."""

    @abstractmethod
    def soon(self, call: Callable[[], object]) -> None:
        """Make a call in a later turn of the loop."""

    @abstractmethod
    def consume(self) -> LoopConsumer:
        """Return a consumer for the job."""

    def open(self) -> None:
        """Make the consumer, which reads once it is asked for a message."""
        self._consumer = self.consume()

    def close(self) -> None:
        """Read no more."""
        if self._consumer is not None:
            self._consumer.close()

    def ended(self) -> None:
        """Let the caller of the worker go on."""
        self.soon(lambda: self.over.resolve(None))

    def wake(self, role: Role) -> None:
        """Wake one of the tasks that wait in a role; they go on in a later turn of the loop."""
        if self._waiting[role]:
            promise = self._waiting[role].popleft()
            self.soon(lambda: promise.resolve(None))

    def wake_all(self) -> None:
        """Wake all tasks."""
        for role in Role:
            for _ in range(len(self._waiting[role])):
                self.wake(role)

    async def until(self, role: Role, look: Callable[[], T | None], seconds: float | None = None) -> T | None:
        """Wait until ``look`` returns something."""
        clock = self._connection.core.clock
        end = None if seconds is None else clock() + seconds
        while (found := look()) is None:
            left = None if end is None else end - clock()
            if left is not None and left <= 0:
                return None
            promise: Promise[None] = Promise()
            self._waiting[role].append(promise)
            try:
                await self._connection.run(self._woken(promise, left))
            finally:
                if promise in self._waiting[role]:
                    self._waiting[role].remove(promise)
        return found

    async def _woken(self, promise: Promise[None], seconds: float | None) -> None:
        if seconds is None:
            await promise
            return
        alarm = self._connection.core.waits.alarm(seconds, lambda: promise.resolve(None))
        try:
            await promise
        finally:
            alarm.cancel()

    async def awaited(self) -> None:
        """Wait for the end."""
        await self._connection.run(self._woken(self.over, None))

    def _reading(self) -> LoopConsumer:
        assert self._consumer is not None
        return self._consumer

    def consumer(self) -> ConsumerCore:
        """Return the consumer's core."""
        return self._reading()._core

    def finishes(self) -> Finishes:
        """Return what finishes messages with a transaction."""
        return self._reading()

    async def delivery(self) -> Delivery | None:
        """Wait for the next messages."""
        taking: Any = self._connection.take(lambda: Take(self.consumer(), math.inf, _as_it_is))
        found: Delivery | None = await taking
        return found

    async def run(self, operation: Coroutine[Promise[Any], None, T]) -> T:
        """Run an operation of the client's core."""
        running: Any = self._connection.run(operation)
        found: T = await running
        return found

    async def tell_begun(self) -> None:
        """Tell the broker which messages are being handled."""
        membership = self.consumer().membership

        async def tell() -> None:
            if membership is not None:
                membership.begun.tell()

        await self.run(tell())

    async def done(self, messages: list[Message]) -> None:
        """Finish messages for the group."""
        finishing: Any = self._reading().done(messages)
        await finishing

    async def description(self) -> GroupDescription:
        """Describe the group."""
        describing: Any = self._connection.describe_group(self._job.group)
        found: GroupDescription = await describing
        return found


def _as_it_is(delivery: Delivery | None) -> Delivery | None:
    return delivery


class LoopCaller(Caller):
    """Calls the handler in a task."""

    async def attempt_without_database(self, attempt: Any) -> None:
        """Call the handler, within a transaction of the broker if it has one."""
        if self.job.options.transaction is None:
            await self.call(attempt)
            return
        async with self.connection.transaction() as tx:
            await self.call_within(attempt, tx)
            attempt.ask = tx.commit


class LoopWorker(ABC):
    """The common part of the workers of both event loops."""

    _core: WorkerCore
    _face: LoopFace
    _job: Job
    _connection: LoopConnection

    @abstractmethod
    def _begin(self, work: Coroutine[Any, Any, None]) -> Any:
        """Begin a task, and return what has its ``cancel``."""

    @abstractmethod
    async def _all(self, tasks: list[Any]) -> None:
        """Wait until tasks have ended, however they do."""

    @abstractmethod
    def _caller(self) -> Any:
        """Return what calls the handler."""

    @property
    def failed(self) -> Message | None:
        """The message whose handler failed, if the worker has ended because of that."""
        return self._core.failed

    def stop(self) -> None:
        """Have :meth:`run` end: no new message is begun, what is under way is finished.

        Call it on the loop's thread; it may be called from the handler, and before ``run``.
        """
        self._core.stop()

    async def _work(self) -> None:
        self._connection._check_process()
        self._core.begin()
        options, core, tasks = self._job.options, self._core, list[Any]()
        caller = self._caller()
        if options.on_start is not None:
            await caller.ended(options.on_start(self._connection))
        try:
            self._face.open()
            parts = [core.read(), core.settling.run(), core.attend()]
            parts += [core.handle(self._caller()) for _ in range(options.concurrency)]
            tasks += [self._begin(self._part(part)) for part in parts]
            await self._face.awaited()
        finally:
            core.abandon()
            # In a later turn: this may have been called by the handler, which is in no state to be cancelled then.
            self._face.soon(lambda: [task.cancel() for task in tasks])
            self._face.close()
            await self._all(tasks)
            if options.on_stop is not None:
                await caller.ended(options.on_stop(self._connection))
        core.result()

    async def _part(self, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except BaseException as error:
            if not self._core.is_over:
                self._core.fail(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
