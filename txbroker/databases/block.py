"""What blocks share, whatever the client: what they tell of themselves, their beginning, the broker's part of them."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from journal.arguments import seconds, wrong_type
from journal.transaction_states import State
from journal.xid import Xid
from txbroker import errors
from txbroker.client.core.promise import Promise
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.queues.publishing import Publishes
from txbroker.client.transactions.transaction import Transaction as TransactionCore
from txbroker.databases.adapters.database import Connector, Database
from txbroker.databases.block_progress import OutboxPart
from txbroker.databases.error_causes import delivery_pending
from txbroker.databases.open_blocks import Place
from txbroker.databases.outbox.keeper import is_for_good
from txbroker.databases.outbox.outbox_block import OutboxBlock
from txbroker.databases.outbox.stream import Stream
from txbroker.databases.outbox.streams import Streams
from txbroker.databases.outbox.terms import AUTO, OUTBOX, TWO_PHASE, OutboxTerms
from txbroker.databases.protocol import Deciding
from txbroker.databases.resolver_thread import Background, background_beside


class Begun(Protocol):
    """A transaction of one of the clients."""

    _core: TransactionCore


T_co = TypeVar("T_co", bound=Begun, covariant=True)


class BrokerSide(Generic[T_co]):
    """The broker's part of a block (:class:`txbroker.databases.block_progress.Side`), but for how a client waits.

    ``wait`` and ``timeout`` are those of :func:`txbroker.atomic`.
    """

    def __init__(self, connection: Any, wait: str, timeout: float | None, outbox: OutboxTerms = AUTO) -> None:
        self.connection = connection
        self._outbox = outbox.check()
        self._streams: Streams | None = None
        self._stream: Stream | None = None
        self.transaction: T_co | None = None
        """The transaction, once the block has begun."""
        self.background: Background | None = None
        self._waits = wait == "commit"
        self._timeout = (
            connection.core.options.timeout
            if timeout is None
            else seconds("timeout", timeout, "nothing was done")
        )

    @property
    def identity(self) -> str:
        """The identity of the broker's data; raises ProcessForked in a child, ConnectionClosed after ``close()``."""
        self.connection._check_process()
        self.connection.core.check_open()
        return str(self.connection.identity)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent or received."""
        return self.transaction is None or self.transaction._core.is_empty

    def make_background(self) -> Background:
        """Return the worker beside the connection."""
        return background_beside(self.connection)

    def open(self, xid: Xid) -> None:
        """Begin the transaction."""
        self.transaction = self.connection.transaction(xid)
        self._can_leave()

    def _can_leave(self) -> None:
        """Have the transaction begin at the broker only when it cannot be left in the database any more."""
        if self._outbox.mode != TWO_PHASE:
            assert self.transaction is not None
            self.transaction._core.begins_beyond = self._outbox.bytes

    async def put_in_outbox(self, database: Database) -> OutboxPart | None:
        """Return the row for the messages, if the block can leave them in the database; None if it is two-phase."""
        terms, streams = self._outbox, self._streams
        if terms.mode == TWO_PHASE:
            return None
        messages = None if streams is None else await self._outside()
        if streams is None or messages is None:
            if terms.mode == OUTBOX:
                raise terms.refusal(streams is None)
            return None
        if terms.backlog is not None:
            streams.check_room(terms.backlog)
        stream, now = self._stream, self.connection.core.wall()
        if stream is None or stream.name not in streams.all:  # it was given up since the block began
            stream = streams.of(database)
        return OutboxBlock(streams, stream, messages, self.identity, now, terms.stops)

    def take_stream(self, database: Database, table: str) -> None:
        """Have the stream of this database connection claimed, so that its first block finds that done."""
        if self._outbox.mode != TWO_PHASE and self.background is not None and database.has_outbox:
            self._streams = self.background.streams(table)
            if self._streams is not None:
                self._stream = self._streams.of(database)

    async def wait_for_earlier(self, database: Database, table: str) -> None:
        """Wait until what this database connection has left there before is delivered: a prepared block would come
        first. Raises StorageUnavailable if that takes longer than the timeout.
        """
        streams = None if self.background is None else self.background.known_streams(table)
        promise = None if streams is None else streams.pending(database)
        if promise is not None and streams is not None:
            try:
                await self._wait(promise)
            except errors.RequestRefused as error:
                if not is_for_good(error):  # else its row was moved away: this block comes after that, too
                    raise
            except TimeoutError as error:
                raise errors.StorageUnavailable(
                    f"earlier blocks of this database connection are not delivered after {self._timeout:g} s, and this "
                    "one must come after them; nothing is committed. It can be run again"
                ) from error

    async def _outside(self) -> list[tuple[PartitionQueue, bytes]] | None:
        """Return the block's messages, if it has nothing else."""
        transaction: Any = self.transaction
        found: list[tuple[PartitionQueue, bytes]] | None = transaction.outside()
        return found

    def ended_by_database(self, part: OutboxPart, commit: bool) -> Any:
        """Note how the database has ended a block that has left its messages there; return a promise for when they
        are visible, if the caller waits for that.
        """
        assert self.transaction is not None
        self._ended_outside(self.transaction._core, commit)
        return part.shown() if commit and self._waits else None

    def _ended_outside(self, core: TransactionCore, commit: bool) -> None:
        core.ended_outside(commit)

    async def prepare(self) -> None:
        """Prepare; the messages that wait here go out in the same write."""
        transaction: Any = self.transaction
        transaction.prepare()

    def abandon(self) -> None:
        """Read received messages again, from the group's position when that is known."""
        if self.transaction is not None:
            self.transaction._core.received.discard()
            self.transaction._core.leave()
        if self.background is not None:
            self.background.hurry()

    def tell(self, commit: bool, key: str = "") -> Any:
        """Begin to tell the broker how it ended; once it has acknowledged, the row with this key is deleted.

        Interrupted, it is told again, which asks for the same. Raises ProcessForked for a commit in a child process.
        """
        if self.transaction is None:
            return None
        try:
            self.connection._check_process()
        except errors.Misuse:
            if commit:
                raise
            return None  # the broker rolls back what it no longer hears of
        return self._tell(self.transaction._core, commit, key)

    def _tell(self, core: TransactionCore, commit: bool, key: str) -> Any:
        core.received.settle(commit)
        # Held, the broker takes it in with the next block's prepare. But a held position keeps others waiting.
        held = not (self._waits or core.moves_groups)
        told = self.connection._post(core.commit(held) if commit else core.rollback())
        told.then(core.leave)  # refused, it is the resolver's, and nobody asks by it
        if self.background is not None:
            self.background.track(told, key)
        return told

    async def shown(self, told: Any) -> None:
        """Wait for the commit that :meth:`tell` has begun, if the caller chose to."""
        if self._waits:
            try:
                await self._wait(told)
            except (errors.TxBrokerError, TimeoutError) as error:
                raise delivery_pending(error, self._timeout) from error

    async def _wait(self, told: Promise[None]) -> None:
        """Wait, as this client does, and raise what it ended with, or TimeoutError."""
        raise NotImplementedError


class Block(Publishes, Generic[T_co]):
    """A block: its messages and positions are committed together with the rows, or not at all."""

    _statement = "with"

    def __init__(
        self, deciding: Deciding, side: BrokerSide[T_co], connect_database: Connector | None
    ) -> None:
        self.deciding = deciding
        """The protocol's steps, for integrations that call them from hooks of a library; not for programs."""
        self._side = side
        opens: object = connect_database
        if opens is not None and not callable(opens):
            raise wrong_type(
                "connect_database", opens, "None or a function that opens a connection", "nothing was done"
            )
        self._connect_database = connect_database

    @property
    def xid(self) -> Xid | None:
        """The xid of the transaction, once it has begun: for ``broker.wait_outcome`` and for logs."""
        return self.deciding.xid

    @property
    def outcome(self) -> State:
        """ACTIVE, COMMITTED or ROLLED_BACK; PREPARED if it is not known how the block ended."""
        return self.deciding.outcome

    @property
    def database(self) -> Database:
        """The adapter of the database connection."""
        return self.deciding.database

    def _transaction(self) -> T_co:
        transaction = self._side.transaction
        if transaction is None or self.deciding.progress.outcome is not State.ACTIVE:
            raise errors.Misuse(
                f"this works inside of the block's `{self._statement}` only; nothing was sent"
            )
        return transaction

    async def _enter(self, place: Place) -> None:
        await self.deciding.enter(place)
        background = self._side.background = self._side.make_background()
        found = self.deciding.identity
        assert found is not None
        if not background.knows(found.name):
            background.watch(found.name, self._connect_database or self.database.connector())
        self._side.take_stream(self.database, found.name)
