"""The client for asyncio: every call gives a ``Future``. Same names as the blocking client's."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from journal.settings import TopicChoices
from journal.transaction import State, Xid
from txbroker.client.asyncio.reply import Reply
from txbroker.client.asyncio.transaction import Transaction
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.receiver import Receiver
from txbroker.client.core import url as urls
from txbroker.client.core.options import Options
from txbroker.client.core.positions import Positions
from txbroker.client.core.promise import Promise, start
from txbroker.client.core.results import GroupPosition, Message, Receipt, TransactionDetails
from txbroker.client.core.transaction_names import Which
from txbroker.client.core.waits import until
from txbroker.client.loop import tls
from txbroker.client.loop.connection import LoopConnection, LoopConsumer
from txbroker.wire.messages import GroupInfo, Outcome, TopicInfo, TransactionInfo

T = TypeVar("T")


async def connect(url: str = urls.DEFAULT, **choices: Any) -> Connection:
    """Connect; ``choices`` are the fields of :class:`Options`. Raises as ``txbroker.connect`` does."""
    options = Options(**choices)
    connection = Connection(urls.parse(url), options, asyncio.get_running_loop())
    try:
        await connection._run(connection._producer.begin(time.monotonic() + options.timeout))
    except BaseException:
        connection._abort()
        raise
    return connection


class Connection(LoopConnection):
    """A session with a broker that outlives its TCP connections; the calls are those of the blocking client.

    For the loop's thread. Each call is made when it is called, awaited or not; docs/clients.md has a table of what
    cancelling one does. What gives out messages (``receive``, ``poll``, ``async for``) begins when it is awaited, and
    takes them when its caller goes on.
    """

    def __init__(self, address: urls.Address, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(address, options)
        tls.check(address)
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None

    def _connect(self) -> None:
        self._opening = self._loop.create_task(self._open())

    async def _open(self) -> None:
        address, loop = self.address, self._loop
        try:
            async with asyncio.timeout(self.core.options.timeout):
                if address.kind == "unix":
                    await loop.create_unix_connection(lambda: _Protocol(self), address.path)
                else:
                    context = tls.context(address)
                    await loop.create_connection(
                        lambda: _Protocol(self), address.host, address.port, ssl=context
                    )
        except (OSError, TimeoutError) as error:
            tls.end_if_untrusted(self.core, address, error)
            self._lost(f"cannot connect to {address.place}: {error}")

    def _take(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self.core.fatal is not None:
            self._drop()
            return
        self._made()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self.core.fatal is not None:
            if self._timer is not None:
                self._timer.cancel()
            if self._opening is not None:
                self._opening.cancel()

    def _set_alarm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self.core.fatal else self._loop.call_later(seconds, self._woken)

    def _run(self, operation: Coroutine[Promise[Any], None, T]) -> Reply[T]:
        """Run an operation of the core; an asyncio.Future for its end. Cancelled, it is given up."""
        if self.is_forked or self.core.asking:
            operation.close()
            self._check_process()
        task = start(operation)
        self._settle()
        return Reply(task, self, self._loop)

    async def _taken(self, source: ConsumerCore | Receiver, end: float, take: Callable[[], T], none: T) -> T:
        """Wait until ``end`` of the core's clock for the turn, then take, in one step with going on."""
        self._check_process()
        turn = source.join(end)
        self._settle()
        try:
            if not turn.done:
                reply: asyncio.Future[bool] = self._loop.create_future()
                turn.then(lambda: None if reply.cancelled() else reply.set_result(True))
                await reply
            return take() if turn.result() else none
        finally:
            turn.leave()
            self._settle()

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
    ) -> asyncio.Future[Receipt]:
        """Send a message; the receipt comes once it is forced. Pipelined and batched, in order per partition."""
        return self._run(self._send(topic, value, key, headers, partition, timestamp))

    send_async = send

    def flush(self) -> asyncio.Future[None]:
        """Wait until all messages sent so far are answered; fails with the first failure among them."""
        return self._run(self._producer.flush())

    # -- transactions ------------------------------------------------------------------------------

    def transaction(self, xid: Xid | None = None) -> Transaction:
        """A one-phase transaction; ``async with`` commits at its end, rolls back on an exception."""
        return Transaction(self, self._transaction(xid))

    def tpc_prepare(self) -> asyncio.Future[None]:
        """PEP 249: the first phase."""
        return self._run(self._two_phase.prepare())

    def tpc_commit(self, xid: Xid | None = None) -> asyncio.Future[None]:
        """PEP 249: the second phase, or both in one; with ``xid`` a recovered transaction."""
        return self._run(self._two_phase.commit(xid))

    def tpc_rollback(self, xid: Xid | None = None) -> asyncio.Future[None]:
        """PEP 249: roll back, prepared or not; with ``xid`` a recovered transaction."""
        return self._run(self._two_phase.rollback(xid))

    def tpc_recover(self) -> asyncio.Future[list[Xid]]:
        """PEP 249: the prepared transactions, of any session."""
        return self._run(self._two_phase.recover())

    # -- consuming ---------------------------------------------------------------------------------

    def consume(self, topics: str | Sequence[str], group: str | None = None, **choices: Any) -> Consumer:
        """Read on and on; ``choices`` are the fields of :class:`ConsumerOptions`."""
        return Consumer(self, self._consumer(topics, group, choices))

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20, max_wait: float = 0.0
    ) -> asyncio.Future[list[Message]]:
        """What can be read from ``offset`` on, in order, about ``max_bytes`` of it (never less than one message).

        Waits up to ``max_wait`` seconds for a first message; nothing by then is an empty list.
        """
        return self._run(self._operations.read(topic, partition, offset, max_bytes, max_wait))

    # -- topics and groups -------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        exist_ok: bool = False,
        **settings: Unpack[TopicChoices],
    ) -> asyncio.Future[TopicInfo]:
        """Create a topic, with settings and ``exist_ok`` as the blocking client's; fails with TopicExists."""
        return self._run(self._operations.create_topic(name, partitions, settings, exist_ok))

    def delete_topic(self, name: str, topic_id: bytes | None = None) -> asyncio.Future[None]:
        """Delete a topic with its messages; raises UnknownTopic. ``topic_id`` says which one (None: today's)."""
        return self._run(self._operations.delete_topic(name, topic_id))

    def topics(self, names: Iterable[str] | None = None) -> asyncio.Future[list[TopicInfo]]:
        """Describe topics, sorted by name; unknown ones are left out."""
        return self._run(self._operations.topics(names))

    def offsets_for_time(self, topic: str, time: datetime | int) -> asyncio.Future[dict[int, int]]:
        """Per partition the first offset appended at ``time`` (or µs since 1970 UTC) or later."""
        return self._run(self._operations.offsets_for_time(topic, time))

    def groups(self) -> asyncio.Future[list[GroupInfo]]:
        """All consumer groups with their positions and lags."""
        return self._run(self._operations.groups())

    def group_offsets(self, group: str) -> asyncio.Future[list[GroupPosition]]:
        """A group's positions, sorted by topic and partition."""
        return self._run(self._operations.group_offsets(group))

    def set_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> asyncio.Future[None]:
        """Move a group to other positions: offset by partition."""
        return self._run(self._operations.set_offsets(group, topic, offsets))

    def delete_group(self, group: str, group_id: bytes | None = None) -> asyncio.Future[None]:
        """Forget a group and its positions; raises UnknownGroup. ``group_id`` says which one (None: today's)."""
        return self._run(self._operations.delete_group(group, group_id))

    # -- for operators -----------------------------------------------------------------------------

    def transactions(
        self,
        states: Iterable[State] = (),
        *,
        format_id: int | None = None,
        global_prefix: bytes = b"",
        forced: bool = False,
    ) -> asyncio.Future[list[TransactionInfo]]:
        """All transactions in these states (none given: the undecided ones), with xids of this format and prefix.

        With ``forced`` only outcomes that a person or policy forced.
        """
        return self._run(self._operations.transactions(states, format_id, global_prefix, forced))

    def show_transaction(self, which: Which, max_bytes: int = 1 << 16) -> asyncio.Future[TransactionDetails]:
        """A transaction, by number ("12-3") or xid, with its first messages."""
        return self._run(self._operations.show_transaction(which, max_bytes))

    def commit_transaction(self, which: Which, by: str, why: str) -> asyncio.Future[None]:
        """Force a prepared transaction to commit: a heuristic outcome, kept with who and why."""
        return self._run(self._operations.commit_transaction(which, by, why))

    def rollback_transaction(self, which: Which, by: str, why: str) -> asyncio.Future[None]:
        """Force a transaction to roll back: a heuristic outcome, kept with who and why."""
        return self._run(self._operations.rollback_transaction(which, by, why))

    def forget_transaction(self, which: Which, by: str, why: str = "") -> asyncio.Future[None]:
        """Forget a decided transaction's outcome; a forced one needs a reason."""
        return self._run(self._operations.forget_transaction(which, by, why))

    def outcome(self, which: Which) -> asyncio.Future[Outcome]:
        """How a transaction ended, or its state."""
        return self._run(self._operations.outcome(which))

    def status(self) -> asyncio.Future[dict[str, int | float | str]]:
        """The broker's counters and gauges by name."""
        return self._run(self._operations.status())

    def pin_files(self) -> asyncio.Future[int]:
        """Keep the broker from removing files of its data directory; return the LSN of its newest checkpoint.

        For programs that read them. What that checkpoint and the journal above it refer to stays until
        :meth:`unpin_files`, until this connection is lost, or until the disk needs the space; raises DiskFull if it
        does already. A connection has one pin.
        """
        return self._run(self._operations.pin_files())

    def unpin_files(self) -> asyncio.Future[bool]:
        """Let the files go; return whether they have been kept all the time since :meth:`pin_files`."""
        return self._run(self._operations.unpin_files())

    def ping(self) -> asyncio.Future[None]:
        """Ends once the broker has answered."""
        return self._run(self.core.ping())

    def close(self, timeout: float | None = None) -> asyncio.Future[None]:
        """Wait up to ``timeout`` seconds for unanswered sends, then close; the rest ends OutcomeUnknown."""
        return self._run(self._end(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Consumer(LoopConsumer):
    """Messages as they come: ``async for``, or :meth:`poll`. See the blocking client's."""

    def __init__(self, connection: Connection, core: ConsumerCore) -> None:
        super().__init__(core)
        self._connection = connection

    async def poll(self, timeout: float = 0.0) -> list[Message]:
        """The next messages, of one partition; none if ``timeout`` seconds pass before there are any."""
        end = until(self._connection.core.clock, timeout)
        return await self._connection._taken(self._core, end, self._rest, [])

    def commit(self, what: Positions = None) -> asyncio.Future[None]:
        """Commit positions of the group; ends once forced. ``what`` as of the blocking client's."""
        return self._connection._run(self._core.commit(what, self._connection._two_phase.current))

    def close(self) -> None:
        """Stop reading; commits nothing."""
        self._core.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = self._pop()  # most are here: no turn of the loop for them
        if message is None:
            message = await self._connection._taken(self._core, math.inf, self._one, None)
        if message is None:
            raise StopAsyncIteration
        return message


class _Protocol(asyncio.Protocol):
    """Passes on what happens to the transport."""

    def __init__(self, owner: Connection) -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._owner._take(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._owner._received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner._transport = None
        self._owner._lost(str(error or "the broker closed the connection"))

    def pause_writing(self) -> None:
        self._owner._flow(False)

    def resume_writing(self) -> None:
        self._owner._flow(True)
