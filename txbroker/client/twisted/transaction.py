"""The Twisted client's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.python.failure import Failure

from txbroker import errors
from txbroker.client.core.positions import add_positions
from txbroker.client.core.results import Message, Receipt
from txbroker.client.core.waits import until
from txbroker.client.loop.connection import LoopConsumer, LoopTransaction, one_of
from txbroker.client.producer.batch import Frames
from txbroker.client.transactions import bulk
from txbroker.client.transactions.block import TransactionFacts
from txbroker.client.transactions.transaction import Transaction as TransactionCore

if TYPE_CHECKING:
    from txbroker.client.twisted import Connection


class Transaction(LoopTransaction, TransactionFacts):
    """All or nothing over topics and partitions; see the blocking client's."""

    _connection: Connection

    def __init__(self, connection: Connection, core: TransactionCore) -> None:
        self._connection = connection
        self._core = core

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
    ) -> Deferred[Receipt]:
        """Add a message; the receipt has no offset yet."""
        return self._connection._run(self._core.send(topic, value, key, headers, partition, timestamp))

    def send_many(self, topic: str, values: Sequence[bytes | None], **columns: Any) -> Deferred[None]:
        """Add messages, given in columns of equal length; the others are those of :func:`bulk.send_many`."""
        return self._connection._run(bulk.send_many(self._core, topic, values, **columns))

    def send_frames(self, topic: str, split: Callable[[int], Iterable[tuple[int, Frames]]]) -> Deferred[None]:
        """Add messages that are frames already: see :func:`bulk.send_frames`."""
        return self._connection._run(bulk.send_frames(self._core, topic, split))

    def prepare(self) -> Deferred[None]:
        """The first phase, if it was begun with an xid."""
        preparing = self._connection._run(self._core.prepare())
        preparing.addErrback(self._prepare_failed)
        return preparing

    def _prepare_failed(self, failure: Failure) -> Failure:
        if failure.check(CancelledError):
            self._core.prepare_cut_short()
        return failure

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Deferred[Message | None]:
        """Receive the group's next message; see the blocking client's."""
        try:
            end = until(self._core.core.clock, timeout)
            receiver = self._receiver(topics, group, choices)
        except errors.TxBrokerError as error:
            return fail(error)
        return self._connection._taken(receiver, end, lambda: one_of(receiver), None)

    def commit_offsets(self, consumer: LoopConsumer) -> Deferred[None]:
        """Add the positions after what ``consumer`` has handed out so far."""
        return self._connection._run(add_positions(self._core, consumer))

    def commit(self) -> Deferred[None]:
        """Commit in one phase; ends once forced and visible. Fails as the blocking client's does."""
        return self._connection._run(self._core.commit())

    def rollback(self) -> Deferred[None]:
        """Roll back; also after a failed commit."""
        return self._connection._run(self._core.rollback())

    async def __aenter__(self) -> Self:
        self._enter_block(None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_block()
        if error is not None:
            self._abandon()
            return
        try:
            await self.commit()
        except errors.OutcomeUnknown:
            raise
        except errors.TxBrokerError:
            self._abandon()
            raise
