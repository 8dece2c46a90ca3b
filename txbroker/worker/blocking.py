"""The worker of the blocking client: a thread for each part, and one for each call of the handler at a time."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from txbroker.client.blocking import Connection, Consumer
from txbroker.client.blocking.semaphore import BinarySemaphore
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.positions import Finishes
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import GroupDescription, Message
from txbroker.databases.adapters.adapter import run
from txbroker.databases.blocking import atomic
from txbroker.worker.core import WorkerCore
from txbroker.worker.face import Attempt, Role
from txbroker.worker.hand import Caller
from txbroker.worker.options import Job, checked_job

T = TypeVar("T")

LONGEST: Final = 1.0
"""Seconds after which a waiting thread looks again: an exception of a signal's handler may have ended a call that wakes
it.
"""


class Worker:
    """A worker that ``Connection.work`` has made. It runs once."""

    def __init__(self, connection: Connection, topics: Any, group: Any, handler: Any, **choices: Any) -> None:
        self._connection = connection
        self._job = checked_job(topics, group, handler, choices)
        self._face = ThreadFace(connection, self._job)
        self._core = WorkerCore(self._face, self._job)

    @property
    def failed(self) -> Message | None:
        """The message whose handler failed, if the worker has ended because of that."""
        return self._core.failed

    def stop(self) -> None:
        """Have :meth:`run` return: no new message is begun, what is under way is finished.

        It may be called from any thread, from the handler, from a signal's handler, and before ``run``.
        """
        self._core.stop()

    def run(self) -> None:
        """Work until :meth:`stop` is called, the handler fails (``retry=False``), or the topics end (``follow``).

        Returns when everything that was under way is finished. Raises what the handler raised, GenerationFenced if
        other consumers have all partitions, StopTimedOut if calls of the handler have not ended within
        ``stop_timeout``, and the errors of ``Connection.consume``.

        An exception that comes from outside, as KeyboardInterrupt does, stops the worker, and is raised once that is
        done; a second one is raised at once: then nothing more is finished.
        """
        self._connection._check_process()
        self._core.begin()
        options = self._job.options
        if options.on_start is not None:
            options.on_start(self._connection)
        try:
            try:
                self._face.open()
                self._run_parts()
            finally:
                self._end()
        except BaseException:
            self._end()  # an interrupt may have come in there: it is done again
            raise
        finally:
            if options.on_stop is not None:
                options.on_stop(self._connection)
        self._core.result()

    def _end(self) -> None:
        self._core.abandon()
        self._face.close()

    def _run_parts(self) -> None:
        core = self._core
        parts: list[Callable[[], Coroutine[Any, Any, None]]] = [core.read, core.settling.run, core.attend]
        for _ in range(self._job.options.concurrency):
            parts.append(partial(core.handle, ThreadCaller(self._connection, self._job)))
        waiting = deque(parts)
        try:
            self._start(waiting)
            self._wait()
        except BaseException:
            core.stop()
            self._start(waiting)  # each that is missing ends at once, which is waited for
            self._wait()
            raise

    def _start(self, parts: deque[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        while parts:
            # Daemons, because a handler that never returns must not keep the process from ending.
            threading.Thread(target=self._go, args=[parts[0]], name="txbroker-worker", daemon=True).start()
            parts.popleft()  # after an interrupt before this line it is started twice, which does no harm

    def _wait(self) -> None:
        while not self._core.is_over:
            self._face.over.acquire()

    def _go(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            run(part())
        except BaseException as error:  # noqa: BLE001 - raised by run()
            self._core.fail(error)


class ThreadFace:
    """The blocking client, as a worker uses it."""

    def __init__(self, connection: Connection, job: Job) -> None:
        self.lock = threading.RLock()
        self.over = BinarySemaphore()
        """Released at the end."""
        self._connection = connection
        self._job = job
        self._consumer: Consumer | None = None
        self._conditions = {role: threading.Condition(self.lock) for role in Role}

    def open(self) -> None:
        """Make the consumer, which reads once it is asked for a message."""
        self._consumer = self._connection.consume(self._job.topics, self._job.group, **self._job.reading)

    def close(self) -> None:
        """Read no more: the thread that reads returns."""
        if self._consumer is not None:
            self._consumer.close()

    def ended(self) -> None:
        """Let the caller of the worker go on."""
        self.over.release()

    def wake(self, role: Role) -> None:
        """Wake one of the threads that wait in a role."""
        self._conditions[role].notify()

    def wake_all(self) -> None:
        """Wake all threads."""
        for condition in self._conditions.values():
            condition.notify_all()

    async def until(self, role: Role, look: Callable[[], T | None], seconds: float | None = None) -> T | None:
        """Wait until ``look`` returns something."""
        end = None if seconds is None else time.monotonic() + seconds
        with self.lock:
            while (found := look()) is None:
                left = LONGEST if end is None else end - time.monotonic()
                if left <= 0:
                    return None
                self._conditions[role].wait(min(left, LONGEST))
        return found

    def _reading(self) -> Consumer:
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
        return self._reading()._delivery(math.inf)

    async def run(self, operation: Coroutine[Promise[Any], None, T]) -> T:
        """Run an operation of the client's core."""
        return self._connection.run(operation)

    async def tell_begun(self) -> None:
        """Tell the broker which messages are being handled."""
        driver = self._connection._driver
        with driver.lock:
            membership = self.consumer().membership
            if membership is not None:
                membership.begun.tell()
                driver.kick()  # it is sent by this thread: what the handler does may let no other one run

    async def done(self, messages: list[Message]) -> None:
        """Finish messages for the group."""
        self._reading().done(messages)

    async def description(self) -> GroupDescription:
        """Describe the group."""
        return self._connection.describe_group(self._job.group)


class ThreadCaller(Caller):
    """Calls the handler in a thread."""

    awaits = False

    async def attempt(self, attempt: Attempt) -> None:
        """Call the handler, within its transaction if it has one."""
        kind = self.job.options.transaction
        if kind is None:
            await self.call(attempt)
        elif kind == "broker":
            with self.connection.transaction() as tx:
                await self.call_within(attempt, tx)
                attempt.ask = tx.commit
        else:
            if self.database is None:
                self.database = kind()
            with atomic(self.database, self.connection, connect_database=kind) as block:
                await self.call_within(attempt, block, self.database)
                attempt.ask = lambda: self.connection.wait_outcome(block.xid)
