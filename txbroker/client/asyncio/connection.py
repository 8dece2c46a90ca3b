"""The client for asyncio: every call returns a ``Future``. Its names are those of the blocking client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from journal.xid import Xid
from txbroker.client.asyncio.reply import Reply
from txbroker.client.consumer.delivery import look_in_turn
from txbroker.client.core import url as urls
from txbroker.client.core.login import Channel
from txbroker.client.core.options import Options
from txbroker.client.core.promise import Promise
from txbroker.client.core.waits import Turn
from txbroker.client.core.worker import Worker, worker_of
from txbroker.client.loop import tls
from txbroker.client.loop.channel import channel_of, host_of
from txbroker.client.loop.connection import LoopConnection
from txbroker.client.loop.consumer import LoopConsumer
from txbroker.client.loop.loop_method import Take
from txbroker.client.loop.transaction import LoopTransaction

T = TypeVar("T")


async def connect(url: str = urls.DEFAULT, **choices: Any) -> Connection:
    """Connect to a broker; ``choices`` are the fields of :class:`Options`. Raises as ``txbroker.connect`` does."""
    options = Options(**choices)
    connection = Connection(urls.parse(url), options, asyncio.get_running_loop())
    try:
        await connection.run(connection._producer.begin(time.monotonic() + options.timeout))
    except BaseException:
        connection._abort()
        raise
    return connection


class Connection(LoopConnection):
    """A session with a broker that outlives its TCP connections; the calls are those of the blocking client.

    Use it on the loop's thread. A call starts when it is called, awaited or not; docs/clients.md has a table of what
    cancelling a call does. The calls that return messages (``receive``, ``poll``, ``async for``) start when they are
    awaited, and take the messages when their caller resumes.
    """

    def __init__(self, address: urls.Address, options: Options, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(address, options)
        tls.check(address)
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

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
        self.core.entering.channel = partial(_channel, self.address, transport)
        self._made()

    def _may_write_here(self) -> bool:
        return not self._loop.is_running() or self._loop is asyncio._get_running_loop()

    def _call_from_thread(self, call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(call)

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

    def run(
        self, operation: Coroutine[Promise[Any], None, T], given_up: Callable[[], object] | None = None
    ) -> asyncio.Future[T]:
        """Run an operation of the core and return an asyncio.Future for its end. Cancelling the Future gives the
        operation up.
        """
        return Reply(self._started(operation), self, self._loop, given_up)

    async def take(self, begin: Callable[[], Take[T]]) -> T:
        """Wait for the turn, then take messages in the step in which the caller resumes."""
        take, turn = self._begun(begin)
        while True:
            try:
                if not turn.done:
                    await self._granted(turn)
                found, is_answer = look_in_turn(take.source) if turn.result() else (None, True)
                if is_answer:
                    return take.hand_out(found)
            finally:
                turn.leave()
                self._settle()
            turn = self._in_line(take)

    def _granted(self, turn: Turn) -> asyncio.Future[bool]:
        reply: asyncio.Future[bool] = self._loop.create_future()
        turn.then(lambda: None if reply.cancelled() else reply.set_result(True))
        return reply

    def _begin_call(self, calling: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(calling)
        self._calls.add(task)  # the loop keeps no reference
        task.add_done_callback(self._calls.discard)

    def _current_task(self) -> object:
        return asyncio.current_task()

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
    ) -> Worker[Coroutine[Any, Any, None]]:
        """Return a worker that calls ``handler`` for each message of the topics, in tasks; ``run()`` runs it.

        The arguments are those of the blocking client's ``work``.
        """
        found: Worker[Coroutine[Any, Any, None]] = worker_of(
            "asyncio", self, topics, group, handler, **choices
        )
        return found


def _channel(address: urls.Address, transport: asyncio.Transport) -> Channel:
    shown = transport.get_extra_info("ssl_object")
    certificate = None if shown is None else shown.getpeercert(binary_form=True)
    return channel_of(address, host_of(transport.get_extra_info("peername")), certificate)


class Transaction(LoopTransaction):
    """A transaction over topics and partitions, all or nothing; see the blocking client's."""

    _connection: Connection


class Consumer(LoopConsumer):
    """A consumer, which gives messages as they come: ``async for``, or :meth:`poll`. See the blocking client's."""

    _connection: Connection


class _Protocol(asyncio.Protocol):
    """A protocol that passes on what happens to the transport."""

    def __init__(self, owner: Connection) -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._owner._take(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._owner._received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner._transport = None
        tls.end_if_untrusted(self._owner.core, self._owner.address, error)
        self._owner._lost(str(error or "the broker closed the connection"))

    def pause_writing(self) -> None:
        self._owner._flow(False)

    def resume_writing(self) -> None:
        self._owner._flow(True)
