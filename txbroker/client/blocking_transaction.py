"""The blocking client's transaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from txbroker import errors
from txbroker.client import bulk
from txbroker.client.positions import Consumed, add_positions
from txbroker.client.promise import Promise
from txbroker.client.receiving import Receivers
from txbroker.client.results import Message, Receipt
from txbroker.client.transaction_block import Stage, TransactionFacts
from txbroker.client.transactions import Transaction as TransactionCore

log = logging.getLogger("txbroker.client")

T = TypeVar("T")


class Transaction(TransactionFacts):
    """All or nothing over topics and partitions; a context manager that commits, or rolls back on an exception.

    For one thread at a time. Several may be open on a connection. It is gone when the connection dies before
    the commit was sent; the next call says so (:class:`TransactionRolledBack`).
    """

    def __init__(
        self,
        run: Callable[[Coroutine[Promise[Any], None, T]], T],
        core: TransactionCore,
        receivers: Receivers,
    ) -> None:
        self._run: Callable[[Coroutine[Promise[Any], None, Any]], Any] = run
        self._core = core
        self._receivers = receivers

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
    ) -> Receipt:
        """Add a message; the receipt has no offset yet. Arguments as in ``Connection.send``."""
        found: Receipt = self._run(self._core.send(topic, value, key, headers, partition, timestamp))
        return found

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        partitions: Sequence[int | None] | None = None,
        timestamps: Sequence[int | datetime | None] | None = None,
        *,
        by_key: bool = True,
    ) -> None:
        """Add messages in columns of equal length, in their order: see :func:`txbroker.client.bulk.send_many`."""
        columns = (topic, values, keys, headers, partitions, timestamps)
        self._run(bulk.send_many(self._core, *columns, by_key=by_key))

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive the group's next message; its position moves with this transaction, or not at all.

        None if ``timeout`` seconds pass without one. Rolled back, the same message comes again. What is read ahead
        stays with the connection; ``choices`` (fields of :class:`ConsumerOptions`) count at the first call.
        """
        receiver = self._receivers.of(self._core, topics, group, choices)
        found: Message | None = self._run(self._core.receive(receiver, timeout))
        return found

    def commit_offsets(self, consumer: Consumed) -> None:
        """Add the positions after what ``consumer`` has handed out so far."""
        self._run(add_positions(self._core, consumer))

    def prepare(self) -> None:
        """The first phase, if it was begun with an xid: from now on it survives everything until it is decided."""
        self._run(self._core.prepare())

    def commit(self) -> None:
        """Commit in one phase (or the second, after :meth:`prepare`); returns once forced and visible.

        Raises TransactionRolledBack if it did not happen and never will, OutcomeUnknown (with the number) if
        that could not be found out: calling it again asks again.
        """
        self._run(self._core.commit())

    def rollback(self) -> None:
        """Roll back; also after a failed commit."""
        self._run(self._core.rollback())

    def __enter__(self) -> Self:
        self._enter_block(threading.get_ident())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_block()
        if error is None:
            try:
                self.commit()
            except errors.OutcomeUnknown:
                raise
            except errors.TxBrokerError as failure:
                self._roll_back_after(failure)
                raise
        elif self.stage is Stage.OPEN:
            self._roll_back_after(error)

    def _roll_back_after(self, error: BaseException) -> None:
        try:
            self.rollback()
        except errors.TxBrokerError as failure:
            error.add_note(
                f"and the roll-back failed ({failure}); the broker rolls back when the session ends"
            )
