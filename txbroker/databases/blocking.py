"""``txbroker.atomic`` for blocking connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

from journal.transaction import State, Xid
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.blocking_transaction import Transaction
from txbroker.client.results import Message, Receipt
from txbroker.databases import identity
from txbroker.databases.adapter import Connector, Database, adapt, run
from txbroker.databases.background import Background, background_of
from txbroker.databases.deciding import Deciding, Side, check_wait, delivery_pending


def atomic(
    database: Any,
    broker: Connection,
    *,
    application: str = "",
    wait: str = "decision",
    timeout: float | None = None,
    connect_database: Connector | None = None,
) -> Atomic:
    """One transaction for the rows of ``database`` and the messages of ``broker``: a context manager.

    ``database`` is a connection of PEP 249 that is not in autocommit mode, or what SQLAlchemy has. A transaction that
    is open on it is joined. ``application`` names the program in xids, for people. ``wait``: return once it is
    "decision" (committed in the database; the broker shows the messages within moments) or "commit" (they are
    shown), which waits ``timeout`` seconds (None: the broker connection's). ``connect_database`` opens connections for
    the resolver, where the driver does not tell how. See ``docs/atomic.md``.
    """
    check_wait(wait)
    if not isinstance(broker, Connection):
        raise errors.Misuse(
            f"{type(broker).__module__}.{type(broker).__qualname__} is no blocking connection to a broker, as "
            "txbroker.connect() gives; asyncio and Twisted have their own atomic in txbroker.databases; nothing "
            "was done"
        )
    side = BlockingSide(broker, wait == "commit", broker.core.options.timeout if timeout is None else timeout)
    return Atomic(Deciding(adapt(database), side, application), side, connect_database)


def create_decision_table(database: Any, adopt: str = "") -> str:
    """Make the table ``txbroker_decision`` if there is none, and commit; return its identity.

    ``adopt`` is for a copy of a database: "replacement" if it takes the place of the first one for good, "separate" if
    both live on. Raises Misuse inside of a transaction, DecisionTableRefused for a copy that is not adopted.
    """
    return run(identity.create(adapt(database), adopt))


class BlockingSide:
    """The broker's part of a block, over the blocking client."""

    def __init__(self, connection: Connection, waits: bool, timeout: float) -> None:
        self.connection = connection
        self.transaction: Transaction | None = None
        self.background: Background | None = None
        self._waits = waits
        self._timeout = timeout

    @property
    def identity(self) -> str:
        """Of the broker's data; raises ProcessForked in a child process."""
        self.connection._driver.check_process()
        return self.connection.identity

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent or received."""
        return self.transaction is None or self.transaction._core.is_empty

    def make_background(self) -> Background:
        """The worker beside the connection."""
        return background_of(self.connection)

    def open(self, xid: Xid) -> None:
        """Begin."""
        self.transaction = self.connection.transaction(xid)

    async def prepare(self) -> None:
        """Prepare; the messages that wait here go out in the same write."""
        assert self.transaction is not None
        self.transaction.prepare()

    async def commit(self, key: str) -> None:
        """Have it committed; wait for that if the caller chose to."""
        assert self.transaction is not None
        core = self.transaction._core
        core.received.settle(True)
        told = self.connection._post(core.commit())
        if self.background is not None:
            self.background.track(told, key)
        if self._waits:
            try:
                self.connection._driver.wait(told, self._timeout)
            except (errors.TxBrokerError, TimeoutError) as error:
                raise delivery_pending(error, self._timeout) from error

    async def rollback(self) -> None:
        """Have it rolled back."""
        if self.transaction is None:
            return
        core = self.transaction._core
        core.received.settle(False)
        with suppress(errors.Misuse):  # forked, or closed: the broker rolls back what it no longer hears of
            told = self.connection._post(core.rollback())
            if self.background is not None:
                self.background.track(told, "")

    def abandon(self) -> None:
        """What was received is read again, from where the group is when that is known."""
        if self.transaction is not None:
            self.transaction._core.received.discard()
        if self.background is not None:
            self.background.hurry()


class Calls(Protocol):
    """A transaction whose calls return when they are done."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Receipt:
        """Add a message."""

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive a message."""


class CallingSide(Side, Protocol):
    """A side with such a transaction: the blocking client's, or Twisted's from a thread."""

    background: Background | None

    @property
    def transaction(self) -> Calls | None:
        """The transaction, inside of the block."""

    def make_background(self) -> Background:
        """The worker beside the connection."""


class Atomic:
    """A block: what is sent and received in it becomes real together with the rows, or never. For one thread."""

    def __init__(self, deciding: Deciding, side: CallingSide, connect_database: Connector | None) -> None:
        self._deciding = deciding
        self._side = side
        self._connect_database = connect_database

    @property
    def xid(self) -> Xid | None:
        """Which transaction this is, once it has begun: for ``broker.wait_outcome`` and the logs."""
        return self._deciding.xid

    @property
    def outcome(self) -> State:
        """ACTIVE, COMMITTED, ROLLED_BACK; PREPARED if it is not known how it ended."""
        return self._deciding.outcome

    @property
    def database(self) -> Database:
        """The adapter of the database connection."""
        return self._deciding.database

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Receipt:
        """Send a message with the block; the receipt has no offset yet. Arguments as in ``Connection.send``."""
        return self._open().send(topic, value, key, headers, partition, timestamp)

    def receive(
        self, topics: str | Sequence[str], group: str, timeout: float | None = None, **choices: Any
    ) -> Message | None:
        """Receive the group's next message with the block; see ``Transaction.receive``."""
        return self._open().receive(topics, group, timeout, **choices)

    def _open(self) -> Calls:
        if self._side.transaction is None or self.outcome is not State.ACTIVE:
            raise errors.Misuse("this works inside of the block's `with` only; nothing was sent")
        return self._side.transaction

    def __enter__(self) -> Self:
        background = self._side.background = self._side.make_background()
        run(self._deciding.enter())
        try:
            found = self._deciding.identity
            assert found is not None
            if not background.knows(found.name):
                background.watch(found.name, self._connect_database or self.database.connector())
        except BaseException as error:
            run(self._deciding.leave(error))
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._deciding.leave(error))
