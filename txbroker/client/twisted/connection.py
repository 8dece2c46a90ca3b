"""The client for Twisted: every call returns a ``Deferred``. Its names are those of the blocking client."""

from __future__ import annotations

try:
    import twisted.internet as _twisted  # noqa: F401 - what follows needs it
except ImportError as error:
    raise ImportError(
        f"txbroker.client.twisted needs Twisted, which is not installed ({error}): pip install 'txbroker[twisted]'"
    ) from error

import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.python.threadable import isInIOThread

from journal.xid import Xid
from txbroker import errors
from txbroker.client.core import url as urls
from txbroker.client.core.login import Channel
from txbroker.client.core.options import Options
from txbroker.client.core.promise import Cancelled, Promise, Task
from txbroker.client.core.worker import Worker, worker_of
from txbroker.client.loop import tls
from txbroker.client.loop.channel import channel_of
from txbroker.client.loop.connection import LoopConnection
from txbroker.client.loop.consumer import LoopConsumer
from txbroker.client.loop.loop_method import Take
from txbroker.client.loop.transaction import LoopTransaction
from txbroker.client.twisted.endpoint import endpoint

T = TypeVar("T")


def connect(url: str = urls.DEFAULT, *, reactor: Any = None, **choices: Any) -> Deferred[Connection]:
    """Connect to a broker; ``choices`` are the fields of :class:`Options`. Fails as ``txbroker.connect`` does."""
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

    return connection.run(opened())


class Connection(LoopConnection):
    """A session with a broker that outlives its TCP connections; the calls are those of the blocking client.

    Use it on the reactor's thread. A call starts when it is called, and its ``Deferred`` fires when it is answered;
    docs/clients.md has a table of what cancelling one does. ``consume`` returns an object for ``async for``.
    """

    def __init__(self, address: urls.Address, options: Options, reactor: Any) -> None:
        super().__init__(address, options)
        self._reactor = reactor
        self._endpoint = endpoint(reactor, address, options.timeout)
        self._protocol: _Protocol | None = None
        self._call: IDelayedCall | None = None
        self._ending: object = reactor.addSystemEventTrigger("before", "shutdown", self._before_shutdown)

    def _before_shutdown(self) -> Deferred[None]:
        """Send held output, in a turn of the reactor before it drops all connections."""
        self._ending = None
        self._write_held()
        return deferLater(self._reactor, 0.0)

    def _connect(self) -> None:
        factory = Factory.forProtocol(_Protocol)
        factory.noisy = False  # two lines in the log for each attempt would bury all others
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
        self.core.entering.channel = partial(_channel, self.address, protocol.transport)
        self._made()

    def _may_write_here(self) -> bool:
        return not self._reactor.running or isInIOThread()

    def _call_from_thread(self, call: Callable[[], object]) -> None:
        self._reactor.callFromThread(call)

    def _write(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.transport.write(data)

    def _drop(self) -> None:
        if self._protocol is not None:
            self._protocol.transport.abortConnection()
        if self.core.fatal is None:
            return
        if self._call is not None and self._call.active():
            self._call.cancel()
        ending, self._ending = self._ending, None
        if ending is not None:
            self._reactor.removeSystemEventTrigger(ending)

    def _set_alarm(self, seconds: float) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None if self.core.fatal else self._reactor.callLater(seconds, self._woken)

    def run(
        self, operation: Coroutine[Promise[Any], None, T], given_up: Callable[[], object] | None = None
    ) -> Deferred[T]:
        """Run an operation of the core and return a Deferred for its end. Cancelling the Deferred gives the
        operation up.
        """
        task = self._started(operation)

        def cancel(_: Deferred[T]) -> None:
            task.cancel()
            self._settle()
            if given_up is not None:
                given_up()

        deferred: Deferred[T] = Deferred(cancel)
        task.then(lambda: _fire(deferred, task))
        return deferred

    def take(self, begin: Callable[[], Take[T]]) -> Deferred[T]:
        """Wait for the turn, then take messages in the step in which the caller resumes."""
        try:
            take, turn = self._begun(begin)
        except errors.TxBrokerError as error:
            return fail(error)

        def give_up(_: Deferred[T]) -> None:
            turn.leave()
            self._settle()

        deferred: Deferred[T] = Deferred(give_up)

        def granted() -> None:
            if deferred.called:
                return
            try:
                # In the step in which the turn was given: what was there then is there.
                found = take.hand_out(take.source.look() if turn.result() else None)
            except errors.TxBrokerError as error:
                turn.leave()
                deferred.errback(error)
            else:
                turn.leave()
                deferred.callback(found)

        turn.then(granted)
        return deferred

    def _begin_call(self, calling: Coroutine[Any, Any, None]) -> None:
        ensureDeferred(calling)

    def transaction(self, xid: Xid | None = None) -> Transaction:
        """Return a one-phase transaction; ``async with`` commits at its end, and rolls back on an exception."""
        return Transaction(self, self._transaction(xid))

    def consume(
        self, topics: str | Sequence[str] | None = None, group: str | None = None, **choices: Any
    ) -> Consumer:
        """Return a consumer, which reads on and on; ``choices`` are the fields of :class:`ConsumerOptions`."""
        return Consumer(self, self._consumer(topics, group, choices))

    def work(
        self, topics: str | Sequence[str], group: str, handler: Callable[..., object], **choices: Any
    ) -> Worker[Deferred[None]]:
        """Return a worker that calls ``handler`` for each message of the topics, in tasks; ``run()`` runs it.

        The arguments are those of the blocking client's ``work``.
        """
        found: Worker[Deferred[None]] = worker_of("twisted", self, topics, group, handler, **choices)
        return found


class Transaction(LoopTransaction):
    """A transaction over topics and partitions, all or nothing; see the blocking client's."""

    _connection: Connection


class Consumer(LoopConsumer):
    """A consumer, which gives messages as they come: ``async for``, or :meth:`poll`. See the blocking client's."""

    _connection: Connection


class _Protocol(Protocol):
    """A protocol that passes on what happens to the transport."""

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


def _channel(address: urls.Address, transport: Any) -> Channel:
    peer = transport.getPeer()
    shown = transport.getPeerCertificate() if hasattr(transport, "getPeerCertificate") else None
    certificate = None
    if shown is not None:
        from OpenSSL.crypto import FILETYPE_ASN1, dump_certificate

        certificate = dump_certificate(FILETYPE_ASN1, shown)
    return channel_of(address, getattr(peer, "host", ""), certificate)


def _fire(deferred: Deferred[T], task: Task[T]) -> None:
    if isinstance(task.error, Cancelled):  # the Deferred reports that itself
        return
    if task.error is not None:
        deferred.errback(task.error)
    else:
        deferred.callback(task.result())
