"""The transaction of both event loops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenIds, GivenTags
from journal.scheduled_id import ScheduledId
from txbroker import errors
from txbroker.client.core.results import Message, Receipt
from txbroker.client.core.waits import until
from txbroker.client.loop.connection import LoopConnection
from txbroker.client.loop.loop_method import Take, loop_part_method, one_of, taking_method
from txbroker.client.producer.batch import Frames
from txbroker.client.transactions import bulk, taking_back
from txbroker.client.transactions.client_transaction import ClientTransaction
from txbroker.client.transactions.transaction import Transaction


class LoopTransaction(ClientTransaction):
    """A transaction over topics and partitions, all or nothing; see the blocking client's."""

    _connection: LoopConnection

    def __init__(self, connection: LoopConnection, core: Transaction) -> None:
        self._connection = connection
        self._core = core

    @loop_part_method
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
        """Add a message; the receipt has no offset yet."""
        sending = self._core.send(topic, value, key, headers, partition, timestamp, id, tags, after, at)
        return self._connection.run(sending, self._core.cut_short)

    @loop_part_method
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
    ) -> Awaitable[None]:
        """Add messages from columns of equal length, in their order: see :func:`bulk.send_many`."""
        columns = (topic, values, keys, headers, partitions, timestamps, ids, tags)
        sending = bulk.send_many(self._core, *columns, by_key=by_key, after=after, at=at)
        return self._connection.run(sending, self._core.cut_short)

    @loop_part_method
    def send_frames(
        self, topic: str, split: Callable[[int], Iterable[tuple[int, Frames]]]
    ) -> Awaitable[None]:
        """Add messages that are frames already: see :func:`bulk.send_frames`."""
        return self._connection.run(bulk.send_frames(self._core, topic, split), self._core.cut_short)

    @loop_part_method
    def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> Awaitable[list[ScheduledId]]:
        """Take scheduled messages back with the transaction; see the blocking client's."""
        taking = taking_back.take_back(self._core, id, message_id)
        return self._connection.run(taking, self._core.cut_short)

    @loop_part_method
    def prepare(self) -> Awaitable[None]:
        """Prepare a transaction that has an xid: from now on it survives everything until it is decided."""
        return self._connection.run(self._core.prepare(), self._core.prepare_cut_short)

    @taking_method
    def receive(
        self, /, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Awaitable[Message | None]:
        """Receive the group's next message; see the blocking client's."""

        def begin() -> Take[Message | None]:
            end = until(self._core.core.clock, timeout)
            receiver = self._connection._receivers.of(self._core, topics, group, choices)
            self._core.receives(receiver)
            return Take(receiver, end, one_of)

        return self._connection.take(begin)

    def _abandon(self) -> None:
        """End the block after an error: a rollback is sent, and not waited for."""
        if not self._connection.is_forked:
            self._core.abandon()
            self._connection._settle()

    async def __aenter__(self) -> Self:
        self._enter_block(self._connection._current_task())
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
