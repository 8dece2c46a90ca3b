"""``atomic`` for Twisted: an interaction of ``adbapi``, in a thread of its pool, with the Twisted client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.threads import blockingCallFromThread

from journal.transaction import Xid
from txbroker import errors
from txbroker.client.promise import Promise
from txbroker.client.results import Message, Receipt
from txbroker.client.transactions import Transaction as TransactionCore
from txbroker.client.twisted import Connection
from txbroker.client.twisted_transaction import Transaction
from txbroker.databases.adapter import Connector, adapt, kind_of
from txbroker.databases.block import BrokerSide
from txbroker.databases.blocking import Atomic
from txbroker.databases.deciding import Deciding, check_wait
from txbroker.databases.meanings import delivery_pending

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
) -> Deferred[T]:
    """Like ``pool.runInteraction``, with messages: ``interaction(cursor, tx, *args)`` runs in a thread of the pool.

    ``tx.send`` and ``tx.receive`` block that thread, not the reactor. The Deferred ends with the interaction's result
    once all is decided (see :func:`txbroker.atomic`, also for the other arguments), or with what it raised.
    """
    check_wait(wait)
    if not isinstance(broker, Connection):
        raise errors.WrongType(
            f"{kind_of(broker)} is no connection of txbroker.client.twisted; nothing was done"
        )

    def work(wrapped: Any) -> T:
        connection = wrapped._connection  # adbapi's wrapper has no name for it
        side = ThreadSide(broker, wait, timeout)
        with Atomic(Deciding(adapt(connection), side, application), side, connect_database) as tx:
            return interaction(connection.cursor(), tx, *args)

    deferred: Deferred[T] = pool.runWithConnection(work)
    return deferred


class ThreadTransaction:
    """A transaction of the Twisted client, used from another thread than the reactor's."""

    def __init__(self, reactor: Any, transaction: Transaction) -> None:
        self._reactor = reactor
        self._transaction = transaction
        self._core: TransactionCore = transaction._core

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
    ) -> Receipt:
        """Add a message."""
        found: Receipt = _in_reactor(
            self._reactor, self._transaction.send, topic, value, key, headers, partition, timestamp
        )
        return found

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive a message."""
        found: Message | None = _in_reactor(
            self._reactor, self._transaction.receive, topics, group, timeout, **choices
        )
        return found


class ThreadSide(BrokerSide[ThreadTransaction]):
    """The broker's part of a block, over the Twisted client, from a thread of a pool."""

    connection: Connection

    def open(self, xid: Xid) -> None:
        """Begin."""
        made = self._in_reactor(self.connection.transaction, xid)
        self.transaction = ThreadTransaction(self.connection._reactor, made)

    async def prepare(self) -> None:
        """Prepare; the messages that wait here go out in the same write."""
        assert self.transaction is not None
        self._in_reactor(self.transaction._transaction.prepare)

    async def commit(self, key: str) -> None:
        """Have it committed; wait for that if the caller chose to."""
        told, done = self._in_reactor(self._telling, True, key)
        if self._waits:
            try:
                self._in_reactor(done.addTimeout, self._timeout, self.connection._reactor)
                told.result()
            except (errors.TxBrokerError, TimeoutError) as error:
                raise delivery_pending(error, self._timeout) from error

    async def rollback(self) -> None:
        """Have it rolled back."""
        if self.transaction is not None and not self.connection.is_forked:
            self._in_reactor(self._telling, False)

    def _telling(self, commit: bool, key: str = "") -> tuple[Promise[None], Deferred[None]]:
        """On the reactor's thread: begin to tell the broker; a promise, and what fires when it is settled."""
        told = self._tell(commit, key)
        done: Deferred[None] = Deferred()
        told.then(lambda: None if done.called else done.callback(None))
        return told, done

    def abandon(self) -> None:
        """What was received is read again, from where the group is when that is known."""
        if self.transaction is None:
            super().abandon()
        else:
            self._in_reactor(super().abandon)

    def _in_reactor(self, call: Callable[..., Any], *args: Any) -> Any:
        return _in_reactor(self.connection._reactor, call, *args)
