"""The connection on both event loops: a core whose output, alarms and callbacks the loop serves."""

from __future__ import annotations

import inspect
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from journal.arguments import micros, seconds
from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags, marked
from journal.xid import Xid
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.consumer.receiver import Receivers
from txbroker.client.consumer.shared_fetch import SharedFetch
from txbroker.client.core import url as urls
from txbroker.client.core.answers import MOST_AT_ONCE
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import LEAVING, Core
from txbroker.client.core.options import Options
from txbroker.client.core.partitioner import check_asking
from txbroker.client.core.promise import Promise, Task, settled, start
from txbroker.client.core.results import Receipt
from txbroker.client.core.waits import Turn
from txbroker.client.loop import fork
from txbroker.client.loop.apart import apart
from txbroker.client.loop.login import login_of
from txbroker.client.loop.loop_method import Take, loop_method
from txbroker.client.loop.poller import check_system
from txbroker.client.loop.queue import LoopQueueUse
from txbroker.client.loop.since_boot import since_boot
from txbroker.client.operations.operations import Operations
from txbroker.client.operations.transaction_operations import TransactionOperations
from txbroker.client.producer.producer import Producer
from txbroker.client.producer.reports import LAST_REPORT_FAILED, log
from txbroker.client.transactions.serials import Serials
from txbroker.client.transactions.transaction import Transaction
from txbroker.client.transactions.two_phase import TwoPhase, TwoPhaseOperations

T = TypeVar("T")

LATE = 0.1
"""Seconds. If an alarm is late by this much, the loop has been held up."""


class LoopConnection(Operations, TransactionOperations, TwoPhaseOperations, LoopQueueUse, ABC):
    """A session with a broker, on an event loop, which connects, writes, sets alarms and reports bytes and losses.

    A call starts when it is called, awaited or not.
    """

    def __init__(self, address: urls.Address, options: Options) -> None:
        check_system(address)
        self.address = address
        named = options._replace(client=fork.process_name() if options.client == "" else options.client)
        login = login_of(options, address)
        self.core = Core(
            named, time.monotonic, random.random, lambda: time.time_ns() // 1000, login, since_boot
        )
        self.core.entering.apart = apart(self._call_here)
        self.core.answers.most = MOST_AT_ONCE
        self.core.on_held = self._hurry_resolver
        self._shared_fetch = SharedFetch(self.core)
        self._producer = Producer(self.core)
        self._serials = Serials(self.core)
        self._two_phase = TwoPhase(self.core, self._producer, self._serials)
        self._receivers = Receivers(self._shared_fetch)
        self._alarm_at = math.inf
        self._gives_way = False
        self._connected = False
        self._may_write = True
        self._settling = False
        self.is_forked = False
        fork.register(self)

    # -- the loop's part, which a subclass provides ------------------------------------------------

    @abstractmethod
    def _write(self, data: bytes) -> None:
        """Give bytes to the transport."""

    @abstractmethod
    def _call_from_thread(self, call: Callable[[], object]) -> None:
        """Have a call made on the loop's thread, from any other; nothing happens if the loop has ended."""

    @abstractmethod
    def _drop(self) -> None:
        """Drop the transport at once; call :meth:`_lost` later."""

    @abstractmethod
    def _connect(self) -> None:
        """Begin to connect; call :meth:`_made` or :meth:`_lost` later."""

    @abstractmethod
    def _set_alarm(self, seconds: float) -> None:
        """Call :meth:`_woken` after so many seconds, instead of at any earlier alarm."""

    @abstractmethod
    def run(
        self, operation: Coroutine[Promise[Any], None, T], given_up: Callable[[], object] | None = None
    ) -> Awaitable[T]:
        """Run an operation of the core and return an awaitable for its end. Cancelling it gives the operation up.

        ``given_up`` is called then.
        """

    @abstractmethod
    def take(self, begin: Callable[[], Take[T]]) -> Awaitable[T]:
        """Take messages and return an awaitable for them. It fails with what ``begin`` raises."""

    @abstractmethod
    def _begin_call(self, calling: Coroutine[Any, Any, None]) -> None:
        """Have the loop run a coroutine that nobody waits for."""

    def _call_user(self, call: Callable[[], Any], ended: Callable[[], object]) -> None:
        """Call a function of the user's, and ``ended`` when it, or what it returns to wait for, has ended. An error is
        logged.
        """

        async def calling() -> None:
            try:
                found = call()
                if inspect.isawaitable(found):
                    await found
            except Exception:  # noqa: BLE001 - it is the user's
                log.exception("a call of on_revoked or on_lost failed")
            finally:
                ended()

        self._begin_call(calling())

    def _current_task(self) -> object:
        """Return the key of the present task, by which blocks that run at the same time are distinguished, if the loop
        has one.
        """
        return None

    @abstractmethod
    def _may_write_here(self) -> bool:
        """Return whether the transport may be used on this thread: it is the loop's, or the loop has ended."""

    def _call_here(self, call: Callable[[], object]) -> None:
        """Make a call on the loop's thread, and what follows from it."""

        def made() -> None:
            try:
                call()
            finally:
                self._settle()

        self._call_from_thread(made)

    def send_held(self) -> None:
        """Send the output that is held, before a fork or at the interpreter's end, if this thread may."""
        if self._may_write_here():
            self._write_held()

    def _write_held(self) -> None:
        if self.core.held_until < math.inf and self._connected:
            self._write(b"".join(self.core.take_output()))

    def forked(self) -> None:
        """In a child process, leave the connection to the parent."""
        self.is_forked = True

    # -- the common part ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """Serve the core after any event: write, connect, set the alarm, call back."""
        if self._settling:
            return
        self._settling = True
        try:
            core = self.core
            if core.abort and self._connected:
                self._drop()
            if core.connection_due():
                core.connecting()
                self._connect()
            if self._connected and self._may_write and not core.only_holds:
                self._write(b"".join(core.take_output()))
            at = core.wakeup()
            if at < self._alarm_at:
                self._alarm_at = at
                self._set_alarm(max(0.0, at - core.clock()))
        finally:
            self._settling = False

    def _woken(self) -> None:
        late, self._alarm_at = self.core.clock() - self._alarm_at, math.inf
        self._gives_way = late > LATE and not self._gives_way
        if self._gives_way:
            # The loop was held up: bytes that have come meanwhile are received before anything is given up.
            self._set_alarm(0.0)
            return
        try:
            self.core.tick()
        finally:
            self._settle()

    def _made(self) -> None:
        self._connected = True
        self._may_write = True
        self.core.connected()
        self._settle()

    def _received(self, data: bytes) -> None:
        try:
            self.core.received(data)
        finally:
            self._settle()

    def _lost(self, reason: str) -> None:
        self._connected = False
        self.core.lost(self.core.abort or reason)
        self._settle()

    def _flow(self, may_write: bool) -> None:
        """Note whether the transport is full, or has room again."""
        self._may_write = may_write
        self._settle()

    def _check_process(self) -> None:
        if self.is_forked:
            raise fork.refusal()
        check_asking(self.core.asking, self.core.thread())

    def _started(self, operation: Coroutine[Promise[Any], None, T]) -> Task[T]:
        if self.is_forked or self.core.asking:
            operation.close()
            self._check_process()
        return self._post(operation)

    def _post(self, operation: Coroutine[Promise[Any], None, T]) -> Task[T]:
        """Begin an operation that nobody need wait for, and have its requests sent."""
        task = start(operation)
        self._settle()
        return task

    def _begun(self, begin: Callable[[], Take[T]]) -> tuple[Take[T], Turn]:
        """Return what is to be taken, and the turn to wait for."""
        self._check_process()
        take = begin()
        return take, self._in_line(take)

    def _in_line(self, take: Take[Any]) -> Turn:
        turn = take.source.join(take.end)
        self._settle()
        return turn

    # -- calls -------------------------------------------------------------------------------------

    @loop_method
    def send(
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
    ) -> Awaitable[Receipt]:
        """Send a message; the receipt comes once it is forced. Sends are pipelined and batched, in order per partition.

        The arguments are those of the blocking client's ``send``.
        """
        return self.run(self._send(topic, value, key, headers, partition, timestamp, id, tags, after, at))

    send_async = send

    async def _send(
        self, topic: str, value: bytes | None, key: bytes | None, headers: GivenHeaders | None,
        partition: int | None, timestamp: int | datetime | None, id: GivenId, tags: GivenTags,
        after: After | None, at: At | None,
    ) -> Receipt:  # fmt: skip
        current = self._two_phase.current
        if current is not None:
            return await current.send(topic, value, key, headers, partition, timestamp, id, tags, after, at)
        headers, given = marked(headers, id, tags)
        moment = self.core.wall() if timestamp is None else micros("timestamp", timestamp)
        message = (value, moment, key, headers)
        if after is None and at is None:
            appended = await self._producer.append(topic, *message, partition, True)
        else:
            appended = await self._producer.append_later(topic, message, partition, True, after, at)
        batch = appended.batch
        try:
            sent = await batch
        finally:
            # If its caller has given up, the next flush, or the end, reports its failure.
            batch.untold = batch.untold or not batch.done
        return appended.receipt(sent.base_offset, given)

    @client_method
    def flush(self) -> Coroutine[Promise[Any], None, None]:
        """Wait until all messages sent so far are answered; fails with the first failure among them."""
        return self._producer.flush()

    @client_method
    async def close(self, timeout: float | None = None) -> None:
        """Wait up to ``timeout`` seconds for unanswered sends, then close; the rest ends OutcomeUnknown.

        Raises the first failure among them, if there is one; the connection is closed all the same.
        """
        limit = (
            self.core.options.timeout
            if timeout is None
            else seconds("timeout", timeout, "nothing was closed")
        )
        resolver, self.resolver = self.resolver, None
        if resolver is not None:
            resolver.stop(limit, waits=False)  # the loop's thread must not wait for it
        has_held = resolver is not None or self.core.held_until < math.inf
        # What has failed has been told, for on a loop each send has its future, unless its caller gave up.
        self._producer.failed = [batch for batch in self._producer.failed if batch.untold]
        flushing = start(self._producer.flush())
        try:
            if self.core.fatal is None:
                await self._within(flushing, limit)
                await self._report_last(limit)
                await self._within(start(self.core.leave_groups()), min(limit, LEAVING))
                if has_held:  # nobody waits for these answers, and Twisted drops what it has not written
                    await self._within(start(self.core.heard()), min(limit, LEAVING))
        finally:
            self._abort()
        flushing.result()  # it has ended, with all that it waits for

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except errors.TxBrokerError as failure:
            if error is None:
                raise
            error.add_note(f"and a send failed: {failure}")

    def _abort(self) -> None:
        """Close at once, without waiting."""
        self._write_held()
        self.core.stop(errors.ConnectionClosed("this connection has been closed; nothing was sent"))
        self._drop()

    async def _report_last(self, seconds: float) -> None:
        reports = self._producer.reports
        if reports is not None:
            try:
                if not await self._within(start(reports.report(closing=True)), seconds):
                    log.warning(LAST_REPORT_FAILED, f"no answer within {seconds} s")
            except errors.TxBrokerError as error:
                log.warning(LAST_REPORT_FAILED, error)

    async def _within(self, task: Task[None], seconds: float) -> bool:
        """Whether an operation has ended in time; raises what it raises."""
        waiting = settled(task)
        alarm = self.core.waits.alarm(seconds, lambda: waiting.resolve(None))
        try:
            await waiting
        finally:
            alarm.cancel()
        if task.done:
            task.result()
        return task.done

    def _consumer(self, topics: Any, group: str | None, choices: dict[str, Any]) -> ConsumerCore:
        self._check_process()
        options = consumer_options(topics, group, **choices)
        return ConsumerCore(self._shared_fetch, options, self.core.options.client)

    def _transaction(self, xid: Xid | None) -> Transaction:
        return Transaction(self.core, self._producer, self._serials, xid)

    def _joined(self) -> Transaction | None:
        return self._two_phase.current

    def tpc_begin(self, xid: Xid) -> None:
        """PEP 249: begin transaction ``xid``; sends and offset commits of this connection belong to it until
        its end.
        """
        self._check_process()
        self._two_phase.begin(xid)
