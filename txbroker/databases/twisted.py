"""``atomic`` for Twisted: an interaction of ``adbapi``, in a thread of its pool, with the Twisted client."""

from __future__ import annotations

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from journal.scheduled_id import ScheduledId

try:
    import twisted.internet as _twisted  # noqa: F401 - what follows needs it
except ImportError as error:
    raise ImportError(
        f"txbroker.databases.twisted needs Twisted, which is not installed ({error}): pip install 'txbroker[twisted]'"
    ) from error

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.threads import blockingCallFromThread
from twisted.python.failure import Failure

from journal.xid import Xid
from txbroker import errors
from txbroker.client.core.positions import Finishes
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message, Receipt
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.transactions.transaction import Transaction as TransactionCore
from txbroker.client.twisted import Connection, Transaction
from txbroker.databases.adapters.adapter import adapt, kind_of
from txbroker.databases.adapters.database import Connector, Database
from txbroker.databases.block import BrokerSide
from txbroker.databases.block_progress import OutboxPart
from txbroker.databases.blocking import Atomic
from txbroker.databases.outbox.streams import Backlog
from txbroker.databases.outbox.terms import AUTO_MODE, OUTBOX_BYTES, OutboxTerms
from txbroker.databases.protocol import Deciding, check_wait

log = logging.getLogger("txbroker.databases")

T = TypeVar("T")
_in_reactor: Any = blockingCallFromThread  # its own types know Deferreds of one kind only


def run_atomic(
    pool: ConnectionPool,
    broker: Connection,
    interaction: Callable[..., T],
    *args: Any,
    application: str = "",
    wait: str = "decision",
    timeout: float | None = None,
    connect_database: Connector | None = None,
    mode: str = AUTO_MODE,
    outbox_bytes: int = OUTBOX_BYTES,
    max_backlog: Backlog | None = None,
    on_refused: str = "move",
) -> Deferred[T]:
    """Run ``interaction(cursor, tx, *args)`` in a thread of the pool, as ``pool.runInteraction`` does, with messages.

    ``tx.send`` and ``tx.receive`` block that thread, not the reactor. The Deferred fires with the interaction's result
    once everything is decided, or with its error. The other arguments are those of :func:`txbroker.atomic`.

    A Deferred that is cancelled fails at once. The thread goes on to its next call of ``tx``, or to the end. Before
    COMMIT both sides are rolled back then, later the database decides: the error's notes say which, and the xid.
    """
    check_wait(wait)
    if not isinstance(broker, Connection):
        raise errors.WrongType(
            f"{kind_of(broker)} is no connection of txbroker.client.twisted; nothing was done"
        )

    giving_up = GivingUp()
    terms = OutboxTerms(mode, outbox_bytes, max_backlog, on_refused).check()

    def work(wrapped: Any) -> T:
        giving_up.check()  # the block may have waited for a thread
        connection = wrapped._connection  # adbapi's wrapper has no public name for it
        side = ThreadSide(broker, wait, timeout, terms)
        side.giving_up = giving_up
        deciding = Deciding(adapt(connection), side, application)
        deciding.last_moment = giving_up.passed
        with Atomic(deciding, side, connect_database) as tx:
            return interaction(connection.cursor(), tx, *args)

    return _cancellable(pool.runWithConnection(work), giving_up)


def _cancellable(working: Deferred[T], giving_up: GivingUp) -> Deferred[T]:
    """Return a Deferred for a block in a thread that fails at once when it is cancelled."""

    def cancel(outer: Deferred[T]) -> None:
        outer.errback(giving_up.give_up())

    def ended(result: T | Failure) -> None:
        if not deferred.called:
            deferred.callback(result)
        elif isinstance(result, Failure) and not result.check(CancelledError):
            log.warning("a cancelled block has failed, which no caller waits for: %s", result.value)

    deferred: Deferred[T] = Deferred(cancel)
    working.addBoth(ended)
    return deferred


class GivingUp:
    """Whether a block's caller, on the reactor's thread, has given it up before its COMMIT.

    The lock decides once which of both came first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_given_up = False
        self._is_committing = False
        self._waiting: Deferred[Any] | None = None
        self.xid: Xid | None = None
        """The xid of the block, once it has begun."""

    def give_up(self) -> CancelledError:
        """On the reactor's thread: roll the block back if its COMMIT has not begun. Return the error for the caller."""
        error = CancelledError()
        with self._lock:
            self._is_given_up = not self._is_committing
        if not self._is_given_up:
            error.add_note(
                f"txbroker: the database was being asked to commit, or had committed; rows and messages have the same "
                f"outcome, and broker.wait_outcome(xid) returns it. xid {self.xid}"
            )
            return error
        error.add_note(
            "txbroker: the database is not asked to commit: both are rolled back by the block's thread"
        )
        if self._waiting is not None:
            self._waiting.cancel()
        return error

    def check(self) -> None:
        """Raise CancelledError if the block has been given up."""
        if self._is_given_up:
            raise CancelledError

    def passed(self) -> None:
        """Note that COMMIT is next. Raises CancelledError if the block has been given up; later it cannot be."""
        with self._lock:
            self.check()
            self._is_committing = True

    def guard(self, call: Callable[..., Deferred[T]], *args: Any, **keywords: Any) -> Deferred[T]:
        """On the reactor's thread: make a call that is cancelled when the block is given up."""
        self.check()
        waiting = self._waiting = call(*args, **keywords)
        return waiting


class ThreadTransaction:
    """A transaction of the Twisted client, for use on another thread than the reactor's."""

    def __init__(self, reactor: Any, transaction: Transaction, giving_up: GivingUp) -> None:
        self._reactor = reactor
        self._transaction = transaction
        self._giving_up = giving_up
        self._core: TransactionCore = transaction._core

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
        """Add a message."""
        message = (topic, value, key, headers, partition, timestamp, id, tags)
        return self._call(self._transaction.send, *message, after=after, at=at)

    def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> list[ScheduledId]:
        """Take scheduled messages back."""
        return self._call(self._transaction.cancel, id, message_id=message_id)

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive a message."""
        return self._call(self._transaction.receive, topics, group, timeout, **choices)

    def done(self, what: Message | Sequence[Message], consumer: Finishes | None = None) -> None:
        """Finish messages."""
        self._call(self._transaction.done, what, consumer)

    def ack(self, message: Message | Sequence[Message]) -> None:
        """Acknowledge messages of a queue."""
        self._call(self._transaction.ack, message)

    def prepare(self) -> None:
        """Prepare."""
        self._call(self._transaction.prepare)

    def outside(self) -> list[tuple[PartitionQueue, bytes]] | None:
        """Return the messages, if there is nothing else."""
        found: list[tuple[PartitionQueue, bytes]] | None = self._call(self._transaction.outside)
        return found

    def _call(self, call: Callable[..., Deferred[T]], *args: Any, **choices: Any) -> T:
        found: T = _in_reactor(self._reactor, self._giving_up.guard, call, *args, **choices)
        return found


class ThreadSide(BrokerSide[ThreadTransaction]):
    """The broker's part of a block, over the Twisted client, from a thread of a pool."""

    connection: Connection
    giving_up: GivingUp

    def open(self, xid: Xid) -> None:
        """Begin."""
        self.giving_up.xid = xid
        made = self._in_reactor(self.connection.transaction, xid)
        self.transaction = ThreadTransaction(self.connection._reactor, made, self.giving_up)
        self._can_leave()

    async def put_in_outbox(self, database: Database) -> OutboxPart | None:
        """Return the row for the messages, if the block can leave them in the database."""
        part = await super().put_in_outbox(database)
        if part is not None:
            self.giving_up.xid = part.xid
        return part

    def _ended_outside(self, core: TransactionCore, commit: bool) -> None:
        self._in_reactor(super()._ended_outside, core, commit)

    def _tell(self, core: TransactionCore, commit: bool, key: str) -> Any:
        return self._in_reactor(self._telling, core, commit, key)

    def _telling(self, core: TransactionCore, commit: bool, key: str) -> tuple[Promise[None], Deferred[None]]:
        told = super()._tell(core, commit, key)
        done: Deferred[None] = Deferred()
        told.then(lambda: None if done.called else done.callback(None))
        return told, done

    async def _wait(self, told: Any) -> None:
        if isinstance(told, Promise):  # the messages lie in the database, and another thread delivers them
            delivered = threading.Event()
            told.then(delivered.set)
            if told.done:
                told.finish()  # it may have been settled just when this was added
            if not delivered.wait(self._timeout):
                raise TimeoutError
            told.result()
            return
        promise, done = told
        try:
            self._in_reactor(done.addTimeout, self._timeout, self.connection._reactor)
        except DeferredTimeout as error:
            raise TimeoutError(str(error)) from error
        promise.result()

    def abandon(self) -> None:
        """Read received messages again, from the group's position when that is known."""
        if self.transaction is None:
            super().abandon()
        else:
            self._in_reactor(super().abandon)

    def _in_reactor(self, call: Callable[..., Any], *args: Any) -> Any:
        return _in_reactor(self.connection._reactor, call, *args)
