"""The client for Twisted: every call gives a ``Deferred``. Same names as the blocking client's."""

from __future__ import annotations

try:
    import twisted.internet as _twisted  # noqa: F401 - what follows needs it
except ImportError as error:
    raise ImportError(
        f"txbroker.client.twisted needs Twisted, which is not installed ({error}): pip install 'txbroker[twisted]'"
    ) from error

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from journal.settings import TopicChoices
from journal.transaction import State, Xid
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.receiver import Receiver
from txbroker.client.core import url as urls
from txbroker.client.core.options import Options
from txbroker.client.core.positions import Positions
from txbroker.client.core.promise import Cancelled, Promise, Task, start
from txbroker.client.core.results import GroupPosition, Message, Receipt, TransactionDetails
from txbroker.client.core.transaction_names import Which
from txbroker.client.core.waits import until
from txbroker.client.loop import tls
from txbroker.client.loop.connection import LoopConnection, LoopConsumer
from txbroker.client.twisted.endpoint import endpoint
from txbroker.client.twisted.transaction import Transaction
from txbroker.wire.messages import GroupInfo, Outcome, TopicInfo, TransactionInfo

T = TypeVar("T")


def connect(url: str = urls.DEFAULT, *, reactor: Any = None, **choices: Any) -> Deferred[Connection]:
    """Connect; ``choices`` are the fields of :class:`Options`. Fails as ``txbroker.connect`` does."""
    if reactor is None:
        from twisted.internet import reactor
    try:
        connection = Connection(urls.parse(url), Options(**choices), reactor)
    except errors.TxBrokerError as error:
        return fail(error)

    async def opened() -> Connection:
        try:
            await connection._producer.begin(time.monotonic() + connection.core.options.timeout)
        except BaseException:
            connection._abort()
            raise
        return connection

    return connection._run(opened())


class Connection(LoopConnection):
    """A session with a broker that outlives its TCP connections; the calls are those of the blocking client.

    For the reactor's thread. Each call is made when it is called, its ``Deferred`` fires when it is answered;
    docs/clients.md has a table of what cancelling one does. ``consume`` gives an ``async for``.
    """

    def __init__(self, address: urls.Address, options: Options, reactor: Any) -> None:
        super().__init__(address, options)
        self._reactor = reactor
        self._endpoint = endpoint(reactor, address, options.timeout)
        self._protocol: _Protocol | None = None
        self._call: IDelayedCall | None = None

    def _connect(self) -> None:
        factory = Factory.forProtocol(_Protocol)
        factory.noisy = False  # two lines in the log for each attempt would hide all others
        connecting = self._endpoint.connect(factory)
        connecting.addCallbacks(
            self._take,
            lambda failure: self._lost(f"cannot connect to {self.address.place}: {failure.value}"),
        )

    def _take(self, protocol: _Protocol) -> None:
        protocol.owner = self
        self._protocol = protocol
        if self.core.fatal is not None:
            self._drop()
            return
        protocol.transport.registerProducer(protocol, True)
        self._made()

    def _write(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.transport.write(data)

    def _drop(self) -> None:
        if self._protocol is not None:
            self._protocol.transport.abortConnection()
        if self.core.fatal is not None and self._call is not None and self._call.active():
            self._call.cancel()

    def _set_alarm(self, seconds: float) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None if self.core.fatal else self._reactor.callLater(seconds, self._woken)

    def _run(self, operation: Coroutine[Promise[Any], None, T]) -> Deferred[T]:
        """Run an operation of the core; a Deferred for its end. Cancelled, it is given up."""
        if self.is_forked or self.core.asking:
            operation.close()
            self._check_process()
        task = start(operation)
        self._settle()

        def give_up(_: Deferred[T]) -> None:
            task.cancel()
            self._settle()

        deferred: Deferred[T] = Deferred(give_up)
        task.then(lambda: _fire(deferred, task))
        return deferred

    def _taken(
        self, source: ConsumerCore | Receiver, end: float, take: Callable[[], T], none: T
    ) -> Deferred[T]:
        """Wait until ``end`` of the core's clock for the turn, then take, in one step with going on."""
        self._check_process()
        turn = source.join(end)
        self._settle()

        def give_up(_: Deferred[T]) -> None:
            turn.leave()
            self._settle()

        deferred: Deferred[T] = Deferred(give_up)

        def granted() -> None:
            if deferred.called:
                return
            try:
                found = take() if turn.result() else none
            except errors.TxBrokerError as error:
                turn.leave()
                deferred.errback(error)
            else:
                turn.leave()
                deferred.callback(found)

        turn.then(granted)
        return deferred

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
    ) -> Deferred[Receipt]:
        """Send a message; the receipt comes once it is forced. Pipelined and batched, in order per partition."""
        return self._run(self._send(topic, value, key, headers, partition, timestamp))

    send_async = send

    def flush(self) -> Deferred[None]:
        """Wait until all messages sent so far are answered; fails with the first failure among them."""
        return self._run(self._producer.flush())

    # -- transactions ------------------------------------------------------------------------------

    def transaction(self, xid: Xid | None = None) -> Transaction:
        """A one-phase transaction; ``async with`` commits at its end, rolls back on an exception."""
        return Transaction(self, self._transaction(xid))

    def tpc_prepare(self) -> Deferred[None]:
        """PEP 249: the first phase."""
        return self._run(self._two_phase.prepare())

    def tpc_commit(self, xid: Xid | None = None) -> Deferred[None]:
        """PEP 249: the second phase, or both in one; with ``xid`` a recovered transaction."""
        return self._run(self._two_phase.commit(xid))

    def tpc_rollback(self, xid: Xid | None = None) -> Deferred[None]:
        """PEP 249: roll back, prepared or not; with ``xid`` a recovered transaction."""
        return self._run(self._two_phase.rollback(xid))

    def tpc_recover(self) -> Deferred[list[Xid]]:
        """PEP 249: the prepared transactions, of any session."""
        return self._run(self._two_phase.recover())

    # -- consuming ---------------------------------------------------------------------------------

    def consume(self, topics: str | Sequence[str], group: str | None = None, **choices: Any) -> Consumer:
        """Read on and on; ``choices`` are the fields of :class:`ConsumerOptions`."""
        return Consumer(self, self._consumer(topics, group, choices))

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20, max_wait: float = 0.0
    ) -> Deferred[list[Message]]:
        """What can be read from ``offset`` on, waited for up to ``max_wait`` seconds; as the blocking client's."""
        return self._run(self._operations.read(topic, partition, offset, max_bytes, max_wait))

    # -- topics and groups -------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        exist_ok: bool = False,
        **settings: Unpack[TopicChoices],
    ) -> Deferred[TopicInfo]:
        """Create a topic, with settings and ``exist_ok`` as the blocking client's; fails with TopicExists."""
        return self._run(self._operations.create_topic(name, partitions, settings, exist_ok))

    def delete_topic(self, name: str, topic_id: bytes | None = None) -> Deferred[None]:
        """Delete a topic with its messages; raises UnknownTopic. ``topic_id`` says which one (None: today's)."""
        return self._run(self._operations.delete_topic(name, topic_id))

    def topics(self, names: Iterable[str] | None = None) -> Deferred[list[TopicInfo]]:
        """Describe topics, sorted by name; unknown ones are left out."""
        return self._run(self._operations.topics(names))

    def offsets_for_time(self, topic: str, time: datetime | int) -> Deferred[dict[int, int]]:
        """Per partition the first offset appended at ``time`` (or µs since 1970 UTC) or later."""
        return self._run(self._operations.offsets_for_time(topic, time))

    def groups(self) -> Deferred[list[GroupInfo]]:
        """All consumer groups with their positions and lags."""
        return self._run(self._operations.groups())

    def group_offsets(self, group: str) -> Deferred[list[GroupPosition]]:
        """A group's positions, sorted by topic and partition."""
        return self._run(self._operations.group_offsets(group))

    def set_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> Deferred[None]:
        """Move a group to other positions: offset by partition."""
        return self._run(self._operations.set_offsets(group, topic, offsets))

    def delete_group(self, group: str, group_id: bytes | None = None) -> Deferred[None]:
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
    ) -> Deferred[list[TransactionInfo]]:
        """All transactions in these states (none given: the undecided ones), with xids of this format and prefix.

        With ``forced`` only outcomes that a person or policy forced.
        """
        return self._run(self._operations.transactions(states, format_id, global_prefix, forced))

    def show_transaction(self, which: Which, max_bytes: int = 1 << 16) -> Deferred[TransactionDetails]:
        """A transaction, by number ("12-3") or xid, with its first messages."""
        return self._run(self._operations.show_transaction(which, max_bytes))

    def commit_transaction(self, which: Which, by: str, why: str) -> Deferred[None]:
        """Force a prepared transaction to commit: a heuristic outcome, kept with who and why."""
        return self._run(self._operations.commit_transaction(which, by, why))

    def rollback_transaction(self, which: Which, by: str, why: str) -> Deferred[None]:
        """Force a transaction to roll back: a heuristic outcome, kept with who and why."""
        return self._run(self._operations.rollback_transaction(which, by, why))

    def forget_transaction(self, which: Which, by: str, why: str = "") -> Deferred[None]:
        """Forget a decided transaction's outcome; a forced one needs a reason."""
        return self._run(self._operations.forget_transaction(which, by, why))

    def outcome(self, which: Which) -> Deferred[Outcome]:
        """How a transaction ended, or its state."""
        return self._run(self._operations.outcome(which))

    def status(self) -> Deferred[dict[str, int | float | str]]:
        """The broker's counters and gauges by name."""
        return self._run(self._operations.status())

    def pin_files(self) -> Deferred[int]:
        """Keep the broker from removing files of its data directory; return the LSN of its newest checkpoint.

        For programs that read them. What that checkpoint and the journal above it refer to stays until
        :meth:`unpin_files`, until this connection is lost, or until the disk needs the space; raises DiskFull if it
        does already. A connection has one pin.
        """
        return self._run(self._operations.pin_files())

    def unpin_files(self) -> Deferred[bool]:
        """Let the files go; return whether they have been kept all the time since :meth:`pin_files`."""
        return self._run(self._operations.unpin_files())

    def ping(self) -> Deferred[None]:
        """Ends once the broker has answered."""
        return self._run(self.core.ping())

    def close(self, timeout: float | None = None) -> Deferred[None]:
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

    def poll(self, timeout: float = 0.0) -> Deferred[list[Message]]:
        """The next messages, of one partition; none if ``timeout`` seconds pass before there are any."""
        try:
            end = until(self._connection.core.clock, timeout)
        except errors.Misuse as error:
            return fail(error)
        return self._connection._taken(self._core, end, self._rest, [])

    def commit(self, what: Positions = None) -> Deferred[None]:
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


class _Protocol(Protocol):
    """Passes on what happens to the transport."""

    owner: Connection | None = None
    transport: Any

    def dataReceived(self, data: bytes) -> None:
        if self.owner is not None:
            self.owner._received(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.owner is not None:
            self.owner._protocol = None
            tls.end_if_untrusted(self.owner.core, self.owner.address, reason.value)
            self.owner._lost(str(reason.value))

    def pauseProducing(self) -> None:
        if self.owner is not None:
            self.owner._flow(False)

    def resumeProducing(self) -> None:
        if self.owner is not None:
            self.owner._flow(True)

    def stopProducing(self) -> None:
        pass


def _fire(deferred: Deferred[T], task: Task[T]) -> None:
    if isinstance(task.error, Cancelled):  # which the Deferred tells in its own way
        return
    if task.error is not None:
        deferred.errback(task.error)
    else:
        deferred.callback(task.result())
