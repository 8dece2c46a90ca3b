"""The blocking client's transaction."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenIds, GivenTags
from journal.scheduled_id import ScheduledId
from txbroker import errors
from txbroker.client.blocking.driver import Driver
from txbroker.client.consumer.receiver import Receivers
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message, Receipt
from txbroker.client.core.waits import until
from txbroker.client.producer.batch import Frames
from txbroker.client.transactions import bulk, taking_back
from txbroker.client.transactions.client_transaction import ClientTransaction
from txbroker.client.transactions.transaction import Transaction as TransactionCore

T = TypeVar("T")


class Runner(Protocol):
    """The part of a connection that a transaction needs."""

    _driver: Driver
    _receivers: Receivers

    def run(self, operation: Coroutine[Promise[Any], None, T], timeout: float | None = None) -> T:
        """Run an operation of the core."""


class Transaction(ClientTransaction):
    """A transaction over topics and partitions: all or nothing.

    It is a context manager that commits, or rolls back on an exception. It is for one thread at a time. Several may be
    open on a connection. If the connection dies before the commit was sent, the transaction is rolled back, and the
    next call raises :class:`TransactionRolledBack`.
    """

    _connection: Runner

    def __init__(self, connection: Runner, core: TransactionCore) -> None:
        self._connection = connection
        self._run: Callable[[Coroutine[Promise[Any], None, Any]], Any] = connection.run
        self._core = core

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
        """Add a message. Its receipt has no offset yet. The arguments are those of ``Connection.send``.

        When a message is due that is sent later is fixed by this call; its id is in :attr:`scheduled` after the commit.
        """
        before = self._core.contents.changes
        try:
            found: Receipt = self._run(
                self._core.send(topic, value, key, headers, partition, timestamp, id, tags, after, at)
            )
            return found
        except BaseException as error:
            self._core.interrupted(before, error)
            raise

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[GivenHeaders | None] | None = None,
        partitions: Sequence[int | None] | None = None,
        timestamps: Sequence[int | datetime | None] | None = None,
        ids: GivenIds = None,
        tags: Sequence[GivenTags] | None = None,
        *,
        by_key: bool = True,
        after: After | None = None,
        at: At | None = None,
    ) -> None:
        """Add messages from columns of equal length, in their order.

        See :func:`txbroker.client.transactions.bulk.send_many`.
        """
        columns = (topic, values, keys, headers, partitions, timestamps, ids, tags)
        before = self._core.contents.changes
        try:
            self._run(bulk.send_many(self._core, *columns, by_key=by_key, after=after, at=at))
        except BaseException as error:
            self._core.interrupted(before, error)
            raise

    def send_frames(self, topic: str, split: Callable[[int], Iterable[tuple[int, Frames]]]) -> None:
        """Add messages that are frames already. See :func:`txbroker.client.transactions.bulk.send_frames`."""
        before = self._core.contents.changes
        try:
            self._run(bulk.send_frames(self._core, topic, split))
        except BaseException as error:
            self._core.interrupted(before, error)
            raise

    def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> list[ScheduledId]:
        """Take a scheduled message back with the transaction, or all that wait with a ``message_id`` of their sender:
        if it commits, they never come. Return which.

        Raises AlreadySent, ScheduleHeld and NotScheduled unless the message waits now; the transaction goes on then. If
        it is sent before the transaction is prepared or committed, that is refused.
        """
        before = self._core.contents.changes
        try:
            found: list[ScheduledId] = self._run(taking_back.take_back(self._core, id, message_id))
            return found
        except BaseException as error:
            self._core.interrupted(before, error)
            raise

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Return the group's next message; the group's position moves with this transaction, or not at all.

        Returns None if ``timeout`` seconds pass without a message. After a rollback the same message is returned again.
        Messages that have been read ahead stay with the connection. ``choices`` (fields of :class:`ConsumerOptions`)
        are used at the first call.
        """
        connection = self._connection
        end = until(self._core.core.clock, timeout)
        receiver = connection._receivers.of(self._core, topics, group, choices)
        self._core.receives(receiver)
        while delivery := connection._driver.delivery(receiver, end):
            if not delivery.is_empty:  # nothing may come between the next line and the caller
                return delivery.one()
        return None

    def prepare(self) -> None:
        """Prepare a transaction that has an xid. From now on it survives everything until it is decided."""
        try:
            self._run(self._core.prepare())
        except errors.TxBrokerError:
            raise
        except BaseException:
            self._core.prepare_cut_short()
            raise

    def __enter__(self) -> Self:
        self._enter_block(threading.get_ident(), sys._getframe(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._leave_block()
            if error is None:
                self.commit()
            else:
                self._abandon()
        except errors.OutcomeUnknown:
            raise
        except BaseException:
            self._leave_block()
            self._abandon()  # refused, or interrupted; a commit that is under way continues
            raise

    def _abandon(self) -> None:
        driver = self._connection._driver
        if not driver.is_forked:
            with driver.lock:
                self._core.abandon()
                driver.push()
