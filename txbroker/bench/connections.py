"""Many clients' cores are driven on one thread, so that the generator is not what is measured.

The clients for users (blocking, Twisted, asyncio) spend 20 to 100 µs on each message that is waited for. These
connections have no locks, no futures and no event loop of a library, and keep time to the microsecond.
"""

from __future__ import annotations

import ctypes
import math
import select
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial

from txbroker import errors
from txbroker.bench.watched_core import WatchedCore
from txbroker.client.blocking.link import open_socket
from txbroker.client.consumer.shared_fetch import SharedFetch
from txbroker.client.core.options import Options
from txbroker.client.core.url import Address
from txbroker.client.loop.channel import channel_of_socket
from txbroker.client.loop.login import login_of
from txbroker.client.producer.producer import Producer
from txbroker.client.transactions.serials import Serials

RECEIVE_BYTES = 1 << 18

TICK = 0.05
"""Seconds between two checks for time-outs and dead connections."""

LINGERING = 0.0005
"""Seconds between two checks where batches linger: their time must be kept."""

_PR_SET_TIMERSLACK = 29


def keep_time() -> None:
    """Have the kernel wake this thread at the microsecond that it asks for, not up to 50 µs later; best effort."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    except (OSError, AttributeError):  # another C library: a little less exact
        return


class Client:
    """One connection: the client's own core, producer and serials over a socket that :class:`Connections` drives."""

    def __init__(self, address: Address, options: Options, timed: bool) -> None:
        self.core = WatchedCore(options, timed, login_of(options, address))
        self.producer = Producer(self.core)
        self.serials = Serials(self.core)
        self.shared_fetch = SharedFetch(self.core)
        self.socket: socket.socket | None = None
        self._address = address
        self._unsent = memoryview(b"")

    def connect(self) -> None:
        """Connect, and wait for the connection; a failure is reported to the core, which tries again later."""
        self.core.connecting()
        try:
            self.socket = open_socket(self._address, self.core.options.timeout)
        except OSError as error:
            self.core.lost(f"cannot connect to {self._address.place}: {error}")
        else:
            self.core.entering.channel = partial(channel_of_socket, self._address, self.socket)
            self.core.connected()

    def write(self) -> bool:
        """Send what the core has queued; return whether something is left."""
        core, connection = self.core, self.socket
        if connection is None:
            return False
        try:
            while self._unsent or core.output_bytes:
                if not self._unsent:
                    self._unsent = memoryview(b"".join(core.take_output()))
                self._unsent = self._unsent[connection.send(self._unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return True
        except OSError as error:
            self.drop(f"sending failed: {error}")
        return False

    def read(self) -> None:
        """Feed the core with what has arrived."""
        connection = self.socket
        if connection is None:
            return
        try:
            data = connection.recv(RECEIVE_BYTES)
            if not data:
                self.drop("the broker closed the connection")
                return
            self.core.received(data)
            while isinstance(connection, ssl.SSLSocket) and connection.pending():
                self.core.received(connection.recv(RECEIVE_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self.drop(f"receiving failed: {error}")

    def drop(self, reason: str) -> None:
        """Close the socket; the core connects again."""
        connection, self.socket = self.socket, None
        self._unsent = memoryview(b"")
        if connection is not None:
            connection.close()
        self.core.lost(reason)


class Connections:
    """All clients of a process, driven by :meth:`turn`. ``watch`` adds descriptors of other parts."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self._epoll = select.epoll()
        self._by_number: dict[int, Client] = {}
        self._writing: set[int] = set()
        self._watched: dict[int, Callable[[], None]] = {}
        lingering = any(client.core.options.linger for client in clients)
        self._tick_every = LINGERING if lingering else TICK
        self._tick_at = 0.0

    def watch(self, number: int, readable: Callable[[], None]) -> None:
        """Call ``readable`` when this descriptor can be read."""
        self._watched[number] = readable
        self._epoll.register(number, select.EPOLLIN)

    def unwatch(self, number: int) -> None:
        """Stop watching this descriptor."""
        del self._watched[number]
        self._epoll.unregister(number)

    def turn(self, until: float) -> None:
        """Send, wait until something arrives or until ``until`` (of the monotonic clock), and read it."""
        now = time.monotonic()
        if now >= self._tick_at:
            self._tick_at = now + self._tick_every
            self._tick()
        pause = max(0.0, min(until, self._tick_at) - time.monotonic())
        # Python's epoll waits for whole milliseconds; a select on the epoll itself waits for microseconds.
        if pause and not select.select([self._epoll], [], [], pause)[0]:
            return
        for number, events in self._epoll.poll(0):
            client = self._by_number.get(number)
            if client is None:
                self._watched[number]()
                continue
            if events & ~select.EPOLLOUT:
                client.read()
            self.flush(client)

    def flush(self, client: Client) -> None:
        """Send what a client has queued, and note a change of its socket."""
        if client.core.abort and client.socket is not None:
            client.drop(client.core.abort)
        left = client.write()
        if client.socket is None:
            self._forget(client)
            return
        number = client.socket.fileno()
        if left is not (number in self._writing):
            self._writing.symmetric_difference_update({number})
            self._epoll.modify(number, select.EPOLLIN | (select.EPOLLOUT if left else 0))

    def _tick(self) -> None:
        for client in self.clients:
            core = client.core
            core.tick()
            if core.connection_due():
                self._forget(client)
                client.connect()
                if client.socket is not None:
                    self._by_number[client.socket.fileno()] = client
                    self._epoll.register(client.socket, select.EPOLLIN)
            if core.output_bytes or core.abort:
                self.flush(client)
            later = core.later
            while later:
                later.popleft()()

    def _forget(self, client: Client) -> None:
        """Forget a closed socket. It has left the epoll by itself, and its number may soon be another socket's."""
        for number in [number for number, known in self._by_number.items() if known is client]:
            del self._by_number[number]
            self._writing.discard(number)

    def close(self) -> None:
        """Close all connections; nothing should be unanswered any more."""
        for client in self.clients:
            client.core.stop(errors.ConnectionClosed("the measurement is over; nothing was sent"))
            if client.socket is not None:
                client.socket.close()
                client.socket = None
        self._epoll.close()


def run_until(connections: Connections, done: Callable[[], bool], deadline: float = math.inf) -> bool:
    """Run turns until ``done`` says so; return False if the deadline comes first."""
    while not done():
        if time.monotonic() >= deadline:
            return False
        connections.turn(deadline)
    return True
