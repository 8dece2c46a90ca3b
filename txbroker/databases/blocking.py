"""``txbroker.atomic`` for blocking connections."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags
from journal.scheduled_id import ScheduledId
from journal.xid import Xid
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.blocking.transaction import Transaction
from txbroker.client.core.positions import Finishes
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message, Receipt
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.transactions.transaction import Transaction as TransactionCore
from txbroker.databases.adapters.adapter import adapt, kind_of, run
from txbroker.databases.adapters.database import Connector
from txbroker.databases.block import Begun, Block, BrokerSide
from txbroker.databases.open_blocks import Place
from txbroker.databases.outbox.streams import Backlog
from txbroker.databases.outbox.terms import AUTO_MODE, OUTBOX_BYTES, TWO_PHASE, OutboxTerms
from txbroker.databases.protocol import Deciding, check_wait
from txbroker.databases.resolver_thread import Background, background_of
from txbroker.databases.tables import identity


def atomic(
    database: Any,
    broker: Connection,
    *,
    application: str = "",
    wait: str = "decision",
    timeout: float | None = None,
    connect_database: Connector | None = None,
    mode: str = AUTO_MODE,
    outbox_bytes: int = OUTBOX_BYTES,
    max_backlog: Backlog | None = None,
    on_refused: str = "move",
) -> Atomic:
    """Return a context manager that commits the rows of ``database`` and the messages of ``broker`` together.

    ``database`` is a connection of PEP 249 that is not in autocommit mode, or a Session or Connection of SQLAlchemy. A
    transaction that is open on it is joined. ``application`` names the program in xids, for people. ``wait`` says when
    the block returns: with "decision" once the database has committed (the messages become visible within moments),
    with "commit" once the messages are visible, for which it waits ``timeout`` seconds (None: the broker connection's).
    ``connect_database`` opens connections for the resolver, if the driver does not tell how.

    ``mode`` says how the messages travel: "outbox" in the database's own transaction, which is for blocks that only
    send, up to ``outbox_bytes``; "two-phase" by a prepared transaction at the broker; with "auto" the end of the block
    chooses, the first if that is possible. ``max_backlog`` refuses blocks while too many are not delivered.
    ``on_refused`` says what becomes of messages that the broker will never take: "move" to the table
    ``txbroker_outbox_refused``, or "stop" before them. ``docs/atomic.md`` explains all of it.
    """
    check_wait(wait)
    if not isinstance(broker, Connection):
        raise errors.WrongType(
            f"{kind_of(broker)} is no blocking connection to a broker, as txbroker.connect() gives; asyncio and "
            "Twisted have their own atomic in txbroker.databases; nothing was done"
        )
    side = BlockingSide(broker, wait, timeout, OutboxTerms(mode, outbox_bytes, max_backlog, on_refused))
    return Atomic(Deciding(adapt(database), side, application), side, connect_database)


def create_decision_table(database: Any, adopt: str = "") -> str:
    """Make the table ``txbroker_decision`` if it does not exist, and commit; return its identity.

    ``adopt`` is for a copy of a database: "replacement" if the copy takes the place of the original for good,
    "separate" if both live on. Raises Misuse inside a transaction, DecisionTableRefused for a copy that is not
    adopted.
    """
    return run(identity.create(adapt(database), adopt))


class BlockingSide(BrokerSide[Transaction]):
    """The broker's part of a block, over the blocking client."""

    connection: Connection

    def make_background(self) -> Background:
        """Return the worker beside the connection."""
        return background_of(self.connection)

    def open(self, xid: Xid) -> None:
        """Begin the transaction; a lost connection is noticed when something is sent."""
        if self._outbox.mode == TWO_PHASE:
            self.connection._driver.look()
        else:
            self.connection._check_process()
        self.transaction = self.connection._made_transaction(xid)
        self._can_leave()

    async def prepare(self) -> None:
        """Prepare; the messages that wait here go out in the same write."""
        assert self.transaction is not None
        if not self.transaction._core.contents.has_begun:
            self.connection._driver.look()  # begun on a dead connection it could only be rolled back
        self.transaction.prepare()

    async def _outside(self) -> list[tuple[PartitionQueue, bytes]] | None:
        assert self.transaction is not None
        core = self.transaction._core
        if core.core.options.reports:
            return await super()._outside()
        return self.connection._driver.guarded(
            core.outside_now
        )  # an operation of its own takes 25 calls more

    def _ended_outside(self, core: TransactionCore, commit: bool) -> None:
        self.connection._driver.guarded(lambda: core.ended_outside(commit))

    async def _wait(self, told: Promise[None]) -> None:
        self.connection._driver.wait(told, self._timeout)


class Calls(Begun, Protocol):
    """A transaction whose calls return when they are done: the blocking client's, or Twisted's from a thread."""

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

    def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> list[ScheduledId]:
        """Take scheduled messages back."""

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive a message."""

    def done(self, what: Message | Sequence[Message], consumer: Finishes | None = None) -> None:
        """Finish messages."""

    def ack(self, message: Message | Sequence[Message]) -> None:
        """Acknowledge messages of a queue."""


class Atomic(Block[Calls]):
    """A block of :func:`txbroker.atomic`. For one thread."""

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
        """Send a message with the block; the receipt has no offset yet. Arguments as in ``Connection.send``."""
        return self._transaction().send(
            topic, value, key, headers, partition, timestamp, id, tags, after=after, at=at
        )

    def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> list[ScheduledId]:
        """Take scheduled messages back with the block; see ``Transaction.cancel``. The block is two-phase then."""
        return self._transaction().cancel(id, message_id=message_id)

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive the group's next message with the block; see ``Transaction.receive``."""
        return self._transaction().receive(topics, group, timeout, **choices)

    def ack(self, message: Message | Sequence[Message]) -> None:
        """Acknowledge a message of a queue, or each of a list, with the block; see ``Transaction.ack``."""
        self._transaction().ack(message)

    def done(self, what: Message | Sequence[Message], consumer: Finishes | None = None) -> None:
        """Finish a message of a consumer, or each of a list, with the block; see ``Transaction.done``."""
        self._transaction().done(what, consumer)

    def __enter__(self) -> Self:
        try:
            run(self._enter(Place.of(sys._getframe(1))))
            return self
        except BaseException as error:
            run(self.deciding.heal(error))  # nothing if it has been ended: else it was interrupted
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            run(self.deciding.leave(error))
        except BaseException as failure:
            run(self.deciding.heal(failure))
            raise
