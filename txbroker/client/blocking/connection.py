"""The blocking client: ``txbroker.connect()``. docs/clients.md says what the client does when answers are lost.

Several threads may use a :class:`Connection`. A :class:`Consumer` and a :class:`Transaction` are for one thread at a
time. Between ``tpc_begin`` and the end of that transaction only the thread that began it may send.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from journal.arguments import LEAST_TIME, MOST_TIME, micros, seconds
from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags, marked
from journal.scheduled_id import ScheduledId
from journal.xid import Xid
from txbroker import errors
from txbroker.client.blocking.consumer import Consumer
from txbroker.client.blocking.driver import Driver
from txbroker.client.blocking.held_output import PACER
from txbroker.client.blocking.queue import QueueUse
from txbroker.client.blocking.reports import Reporter
from txbroker.client.blocking.send_future import SendFuture, flush
from txbroker.client.blocking.transaction import Transaction
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.notices import Callback
from txbroker.client.consumer.options import Start, consumer_options
from txbroker.client.consumer.receiver import Receivers
from txbroker.client.consumer.shared_fetch import SharedFetch
from txbroker.client.core import url as urls
from txbroker.client.core.core import LEAVING, Core
from txbroker.client.core.options import Options
from txbroker.client.core.partitioner import Partitioner, check_asking
from txbroker.client.core.promise import Promise, Task, start
from txbroker.client.core.results import Receipt
from txbroker.client.core.retry_policy import RetryPolicy
from txbroker.client.core.worker import Worker, worker_of
from txbroker.client.loop.fork import process_name
from txbroker.client.loop.login import login_of
from txbroker.client.loop.since_boot import since_boot
from txbroker.client.operations import scheduled
from txbroker.client.operations.operations import Operations
from txbroker.client.operations.transaction_operations import TransactionOperations
from txbroker.client.producer.producer import Producer
from txbroker.client.transactions.serials import Serials
from txbroker.client.transactions.taking_back import take_back
from txbroker.client.transactions.transaction import Transaction as TransactionCore
from txbroker.client.transactions.two_phase import TwoPhase, TwoPhaseOperations

T = TypeVar("T")


def connect(
    url: str = urls.DEFAULT,
    *,
    client: str = "",
    producer: str = "",
    timeout: float = 30.0,
    reconnect: bool = True,
    max_buffered: int = 64 << 20,
    when_full: str = "wait",
    linger: float = 0.0,
    batch_bytes: int = 64 << 10,
    reports: str = "",
    report_interval: float = 10.0,
    report_window: float = 60.0,
    compression: str | None = None,
    compression_level: int | None = None,
    partitioner: Partitioner | None = None,
    user: str = "",
    password: str | Callable[[], str] | None = None,
    password_file: str | None = None,
    token: str | Callable[[], str] | None = None,
    token_file: str | None = None,
    channel_binding: str = "prefer",
) -> Connection:
    """Connect to a broker; see :class:`txbroker.client.core.options.Options` for the arguments.

    Raises :class:`ConnectionUnavailable` if there is no broker within ``timeout`` seconds,
    :class:`AuthenticationFailed` if it does not let the client in, and :class:`VersionRefused` if it speaks another
    version of the protocol.
    """
    name = process_name() if client == "" else client
    options = Options(
        name, producer, timeout, reconnect, max_buffered, when_full, linger, batch_bytes,
        reports, report_interval, report_window, compression, compression_level, partitioner,
        user, password, password_file, token, token_file, channel_binding,
    )  # fmt: skip
    connection = Connection(urls.parse(url), options)
    try:
        connection._begin(timeout)
        return connection
    except BaseException:
        connection._cut()
        raise


class Connection(Operations, TransactionOperations, TwoPhaseOperations, QueueUse):
    """A session with a broker that outlives its TCP connections. It is a context manager; closing flushes.

    After :meth:`close` every method raises :class:`ConnectionClosed`, and in a child process :class:`ProcessForked`. A
    method raises :class:`ConnectionUnavailable` if nothing could be sent in time, and :class:`RequestTimedOut` if
    something was sent and no answer came in time.
    """

    def __init__(self, address: urls.Address, options: Options) -> None:
        login = login_of(options, address)
        self.core = Core(
            options, time.monotonic, random.random, lambda: time.time_ns() // 1000, login, since_boot
        )
        self.core.thread = threading.get_ident
        self.core.on_held = self._hurry_resolver
        self._shared_fetch = SharedFetch(self.core)
        self._producer = Producer(self.core)
        self._driver = Driver(self.core, address, self._producer)
        self._serials = Serials(self.core)
        self._two_phase = TwoPhase(self.core, self._producer, self._serials)
        self._two_phase_thread = 0
        self._consumers: list[Consumer] = []
        self._receivers = Receivers(self._shared_fetch)
        self._reporter: Reporter | None = None
        self.address = address

    def _begin(self, timeout: float) -> None:
        self.run(self._producer.begin(time.monotonic() + timeout))
        if self._producer.reports is not None:
            self._reporter = Reporter(self, self._producer.reports)
            self._reporter.start()

    def run(self, operation: Coroutine[Promise[Any], None, T], timeout: float | None = None) -> T:
        """Run one operation of the core and wait for its end. An interrupt cancels the operation."""
        driver = self._driver
        if driver.is_forked or self.core.asking:
            self._admit(operation)
        promise = driver.guarded(partial(self._start, operation))
        try:
            return driver.wait(promise, timeout)
        except (errors.TxBrokerError, TimeoutError):
            raise
        except BaseException:
            driver.guarded(self._producer.mend)  # perhaps an interrupt, in the middle of the operation
            raise
        finally:
            if not promise.done:
                self._give_up(promise)

    def _start(self, operation: Coroutine[Promise[Any], None, T]) -> Task[T]:
        promise = start(operation)
        if promise.done:
            self._driver.look_after()  # not more: what a transaction holds back is written with what comes later
        elif self._driver.is_driven:
            self._driver.kick()
        return promise

    def _give_up(self, task: Task[Any]) -> None:
        with self._driver.lock:
            task.cancel()
            self._driver.push()

    def _post(self, operation: Coroutine[Promise[Any], None, T]) -> Promise[T]:
        """Begin an operation and have its requests sent, those that may wait with the next one or by the pacer.

        Its answers are received when a thread next waits.
        """
        driver = self._driver
        if driver.is_forked or self.core.asking:
            self._admit(operation)
        with driver.lock:
            if self.core.might_hold:  # its thread's waking takes 130 µs where blocks come one by one
                PACER.expect(driver)
            promise = start(operation)
            driver.push_in_time()
        return promise

    def _check_process(self) -> None:
        self._driver.check_process()

    def _admit(self, operation: Coroutine[Promise[Any], None, Any]) -> None:
        try:
            self._check_process()
        except errors.TxBrokerError:
            operation.close()
            raise

    # -- sending -----------------------------------------------------------------------------------

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
    ) -> Receipt:
        """Send a message, and return once it is forced to the broker's disk.

        Without ``partition`` the key chooses the partition, as in Kafka. A ``value`` of None is a tombstone.
        ``timestamp`` is a ``datetime`` with a time zone, or µs since 1970 UTC (None: now). ``id`` is the message's id
        (str or bytes), or True for a new one, which the receipt has. ``tags`` are its tags: a str, or a list of some,
        by which groups can filter. With ``after``, a ``timedelta`` or seconds from this call on, or ``at``, a time as
        ``timestamp`` is, it is scheduled: its partition gets it when it is due, and its receipt has ``scheduled`` in
        place of the offset. Between ``tpc_begin`` and the end of that transaction the message belongs to the
        transaction, and its receipt has no offset. Raises :class:`OutcomeUnknown` if the message may or may not be
        stored, and :class:`WrongType` or :class:`WrongValue` for arguments that cannot be a message.
        """
        if self._two_phase.current is not None:
            return self._send_two_phase(topic, value, key, headers, partition, timestamp, id, tags, after, at)
        try:
            take = self._take if after is None and at is None else partial(self._take_later, after, at)
            return take(topic, value, key, headers, partition, timestamp, id, tags, watched=False).result()
        except errors.TxBrokerError:
            raise
        except BaseException:  # an interrupt: no caller waits for it any more
            self._driver.guarded(self._producer.mend)
            raise

    def send_async(
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
    ) -> SendFuture:
        """Send a message without waiting. The future always ends, with a receipt or an error.

        Messages of one partition keep their order, also over retries. Raises Misuse between ``tpc_begin`` and the end
        of that transaction.
        """
        if self._two_phase.current is not None:
            raise errors.Misuse("send_async inside of a two-phase transaction: use send; nothing was sent")
        take = self._take if after is None and at is None else partial(self._take_later, after, at)
        return take(topic, value, key, headers, partition, timestamp, id, tags, watched=True)

    def _take(
        self, topic: str, value: bytes | None, key: bytes | None, headers: GivenHeaders | None,
        partition: int | None, timestamp: int | datetime | None, id: GivenId, tags: GivenTags,
        watched: bool,
    ) -> SendFuture:  # fmt: skip
        driver, producer = self._driver, self._producer
        if timestamp is None:
            timestamp = time.time_ns() // 1000
        elif type(timestamp) is not int or not LEAST_TIME <= timestamp <= MOST_TIME:
            timestamp = micros("timestamp", timestamp)
        given = None
        if id is not None or tags is not None:
            headers, given = marked(headers, id, tags)
        while True:
            if driver.is_forked or self.core.asking:
                driver.check_process()
            with driver.lock:
                route = producer.known_route(topic)
                if route is not None and producer.buffered <= producer.limit:
                    queue = route.choose(key, partition)
                    try:
                        batch, position = queue.append(value, timestamp, key, headers)
                        if watched:
                            batch.watched = True
                            producer.asynchronous = True
                            driver.kick()
                        elif driver.is_driven:
                            driver.kick()
                        return SendFuture(driver, queue, batch, position, queue, given)
                    except BaseException as error:
                        if not isinstance(error, (TypeError, errors.TxBrokerError)):
                            producer.mend()  # an interrupt, for instance
                        raise
            if route is None:
                self.run(producer.route(topic))
            else:
                waiting = producer.append(topic, value, timestamp, key, headers, partition, watched)
                return SendFuture(driver, *self.run(waiting), given)

    def _take_later(
        self, after: After | None, at: At | None, topic: str, value: bytes | None, key: bytes | None,
        headers: GivenHeaders | None, partition: int | None, timestamp: int | datetime | None, id: GivenId,
        tags: GivenTags, watched: bool,
    ) -> SendFuture:  # fmt: skip
        moment = self.core.wall() if timestamp is None else micros("timestamp", timestamp)
        headers, given = marked(headers, id, tags)
        message = (value, moment, key, headers)
        found = self.run(self._producer.append_later(topic, message, partition, watched, after, at))
        self._driver.guarded(self._kick)
        return SendFuture(self._driver, *found, given)

    def _kick(self) -> None:
        if self._driver.is_driven or self._producer.unattended:
            self._driver.kick()

    def _send_two_phase(self, *message: Any) -> Receipt:
        current = self._joined()
        assert current is not None
        return self.run(current.send(*message))

    def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> list[ScheduledId]:
        """Take a scheduled message back; return its id. One that was taken back before, in the last day, is no error.

        ``id`` is what its receipt has as ``scheduled``, or the text of that. With ``message_id``, all that wait with
        that id of their sender are taken back. Between ``tpc_begin`` and the end, this belongs to the transaction, as
        in ``Transaction.cancel``. Raises AlreadySent, ScheduleHeld, NotScheduled.
        """
        current = self._joined()
        if current is None:
            return self.run(scheduled.cancel(self.core, id, message_id))
        return self.run(take_back(current, id, message_id))

    def _joined(self) -> TransactionCore | None:
        """Return the transaction that this thread has begun with ``tpc_begin``; raises Misuse if another thread has
        begun one.
        """
        current = self._two_phase.current
        if current is not None and self._two_phase_thread != threading.get_ident():
            raise errors.Misuse(
                "another thread has begun a two-phase transaction on this connection, and this would be part of it: "
                "use another connection, or transaction(); nothing was sent"
            )
        return current

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all messages that were sent asynchronously are answered, and raise the first failure among
        them.

        Failures that a future has already reported are left out. Raises ``TimeoutError`` after ``timeout`` seconds.
        """
        limit = None if timeout is None else seconds("timeout", timeout, "nothing was awaited")
        flush(self, limit)

    # -- transactions ------------------------------------------------------------------------------

    def transaction(self, xid: Xid | None = None) -> Transaction:
        """Return a transaction, a context manager: it commits in one phase, or rolls back on an exception.

        A transaction with an ``xid`` can be prepared.
        """
        self._driver.look()  # a transaction that begins on a dead connection could only be rolled back
        return self._made_transaction(xid)

    def _made_transaction(self, xid: Xid | None) -> Transaction:
        return Transaction(self, TransactionCore(self.core, self._producer, self._serials, xid))

    def tpc_begin(self, xid: Xid) -> None:
        """PEP 249: begin transaction ``xid``; the sends and offset commits of this thread belong to it until
        its end.
        """
        self._driver.look()
        self._two_phase.begin(xid)
        self._two_phase_thread = threading.get_ident()

    def commit(self) -> None:
        """Raise Misuse inside a two-phase transaction (PEP 249); outside there is nothing to commit."""
        raise errors.Misuse("commit() has no transaction to commit: use tpc_commit() or transaction()")

    def rollback(self) -> None:
        """Raise Misuse inside a two-phase transaction (PEP 249); outside there is nothing to roll back."""
        raise errors.Misuse("rollback() has no transaction: use tpc_rollback() or transaction()")

    # -- consuming ---------------------------------------------------------------------------------

    def consume(
        self,
        topics: str | Sequence[str] | None = None,
        group: str | None = None,
        *,
        partitions: Sequence[int] | None = None,
        start: Start = "committed",
        max_wait: float = 15.0,
        follow: bool = True,
        prefetch: int = 8 << 20,
        max_bytes: int = 1 << 20,
        max_run: int | None = None,
        claim: bool = True,
        out_of_range: str = "earliest",
        order: str | None = "partition",
        pattern: str = "",
        member: str = "",
        session_timeout: float = 45.0,
        max_handover: float = 300.0,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        retry: RetryPolicy | bool = False,
        commit_interval: float | None = None,
        auto_done: bool = False,
        handler_timeout: float | None = None,
        tags: GivenTags = None,
    ) -> Consumer:
        """Return a consumer; see :class:`txbroker.client.consumer.options.ConsumerOptions` for the arguments."""
        options = consumer_options(
            topics, group, partitions=partitions, start=start, max_wait=max_wait, follow=follow, prefetch=prefetch,
            max_bytes=max_bytes, max_run=max_run, claim=claim, out_of_range=out_of_range, order=order,
            pattern=pattern, member=member, session_timeout=session_timeout, max_handover=max_handover,
            on_revoked=on_revoked, on_lost=on_lost, retry=retry, commit_interval=commit_interval,
            auto_done=auto_done, handler_timeout=handler_timeout, tags=tags,
        )  # fmt: skip
        consumer = Consumer(self, ConsumerCore(self._shared_fetch, options, self.core.options.client))
        self._consumers = [other for other in self._consumers if not other.closed]
        self._consumers.append(consumer)
        return consumer

    def work(
        self, topics: str | Sequence[str], group: str, handler: Callable[..., object], **choices: Any
    ) -> Worker[None]:
        """Return a worker that calls ``handler`` for each message of the topics, in threads; ``run()`` runs it.

        ``choices`` are the fields of :class:`txbroker.worker.options.WorkOptions`, and those of
        :class:`txbroker.client.consumer.options.ConsumerOptions`. Raises WrongType, WrongValue.
        """
        found: Worker[None] = worker_of("blocking", self, topics, group, handler, **choices)
        return found

    # -- the end -----------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Wait up to ``timeout`` seconds (None: the client's) for unanswered sends, then close the connection.

        What is unanswered then ends with :class:`OutcomeUnknown`, or with :class:`ConnectionClosed` if it was never
        sent. The connection is closed whatever is raised: the first failure of an asynchronous send, these included,
        that no future and no :meth:`flush` has reported. Closing twice does nothing.
        """
        try:
            self._close(timeout)
        except errors.Misuse:
            raise
        except BaseException:
            self._cut()  # the last step is done also if an interrupt came in there
            raise

    def _close(self, timeout: float | None) -> None:
        check_asking(self.core.asking, self.core.thread())
        default = self.core.options.timeout
        limit = default if timeout is None else seconds("timeout", timeout, "nothing was closed")
        if self._driver.is_forked:  # the threads are the parent's
            self._driver.close(self._closed())
            return
        if self.resolver is not None:
            self.resolver.stop(limit)
            self.resolver = None
        if self.core.fatal is not None:
            self._driver.close(self._closed())
        else:
            try:
                with suppress(TimeoutError):  # what is unanswered then is told below
                    self.flush(limit)
            finally:
                if self._reporter is not None:
                    self._reporter.stop(limit)
                with suppress(TimeoutError):
                    self.run(self.core.leave_groups(), min(limit, LEAVING))
                for consumer in self._consumers:
                    consumer.close()
                with self._driver.lock:
                    self._receivers.close()
                self._driver.close(self._closed())
        self.flush()  # all has ended: it waits for nothing

    def _cut(self) -> None:
        """Release all resources without waiting for anything."""
        if self.resolver is not None and not self._driver.is_forked:
            self.resolver.stop(0.0)
        if self._reporter is not None:
            self._reporter.end()
        self._driver.close(self._closed(), patience=0.0)

    def _closed(self) -> errors.ConnectionClosed:
        return errors.ConnectionClosed("this connection has been closed; nothing was sent")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except errors.TxBrokerError as failure:
            if error is None:
                raise
            error.add_note(f"and a send failed: {failure}")
