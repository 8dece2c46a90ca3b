"""The socket of the blocking client and who moves it: whoever waits drives, a thread helps for what nobody awaits.

A caller that waits alone sends, polls and receives by itself, so a call costs no change of threads. Further
callers wait until the driver has settled their promise, or hands them the wheel. The background thread drives
only while messages sent asynchronously are unanswered and nobody else does.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from txbroker import errors
from txbroker.client import fork, tls
from txbroker.client.core import Core
from txbroker.client.partitioning import check_asking
from txbroker.client.promise import Promise
from txbroker.client.url import Address

log = logging.getLogger("txbroker.client")

T = TypeVar("T")

RECEIVE_BYTES = 1 << 18
WRITE_AT_ONCE = 32 << 10
"""With this many bytes to send, or nothing else in flight, the caller itself writes."""
MOST_SLEEP = 60.0


class Driver:
    """Moves bytes between a core and its socket. ``lock`` protects the core; hold it only for moments."""

    def __init__(self, core: Core, address: Address, unattended: Callable[[], bool]) -> None:
        tls.check(address)
        self.core = core
        self.lock = threading.Lock()
        self.is_forked = False
        self._address = address
        self._unattended = unattended
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)
        self._unsent = memoryview(b"")
        self._wants_write = False
        self._driving = False
        self._asleep = False
        self._calling = 0  # the thread that drives, while it is in a user's callback
        self._followers: list[threading.Event] = []
        self._thread: threading.Thread | None = None
        self._work = threading.Event()
        self._closed = False
        fork.register(self)

    # -- for callers -------------------------------------------------------------------------------

    def wait(self, promise: Promise[T], timeout: float | None = None) -> T:
        """Return a promise's result, driving if nobody does. Raises ``TimeoutError`` after ``timeout``."""
        if not promise.done:
            self.check_process()
            deadline = None if timeout is None else time.monotonic() + timeout
            with self.lock:
                leads = not self._driving
                self._driving = self._driving or leads
            if leads:
                self._lead(promise, deadline)
            elif self._calling == threading.get_ident():
                while not promise.done:  # a callback waits on the thread that drives: nobody else would
                    self._turn(promise, deadline)
            else:
                self._follow(promise, deadline)
        return promise.result()

    def _lead(self, promise: Promise[T], deadline: float | None) -> None:
        try:
            while not promise.done:
                self._turn(promise, deadline)
        finally:
            self._hand_over()

    def _follow(self, promise: Promise[T], deadline: float | None) -> None:
        event = threading.Event()
        with self.lock:
            promise.then(event.set)
            self._followers.append(event)
        while True:
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            told = event.wait(remaining)
            with self.lock:
                if promise.done or not told:
                    self._followers.remove(event)
                    self._offer()  # the wheel may have been offered to this thread
                    break
                event.clear()
                if self._driving:
                    continue
                self._driving = True
                self._followers.remove(event)
            self._lead(promise, deadline)
            return
        if not promise.done:
            raise TimeoutError

    def _hand_over(self) -> None:
        with self.lock:
            self._driving = False
            if self._closed:
                self._close_wake()
            self._offer()

    def _offer(self) -> None:
        """Under the lock: if nobody drives, have somebody who waits take the wheel, or the thread."""
        if self._driving:
            return
        if self._followers:
            self._followers[0].set()
        elif self._unattended():
            self.attend()

    def attend(self) -> None:
        """Have the background thread drive, for work that nobody waits for. Call it under the lock."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._background, name="txbroker-client", daemon=True)
            self._thread.start()
        if not self._work.is_set():
            self._work.set()

    def kick(self) -> None:
        """See to it that output gets out and unattended work is attended. Call it under the lock."""
        core = self.core
        if core.output_bytes and self._socket is not None and not self._unsent:
            if core.output_bytes >= WRITE_AT_ONCE or core.busy <= 1:
                self._write()
            elif self._asleep:
                self.wake()
        if self._unsent and not self._wants_write:
            self.wake()
        if not self._driving and self._unattended():
            self.attend()

    def push(self) -> None:
        """See to it that output gets out though nobody will wait for its answers. Call it under the lock."""
        if self._driving:
            self.wake()
        else:
            self._write()

    def wake(self) -> None:
        """Have the driver, if it sleeps, look again."""
        if self._asleep and self._wake >= 0:
            self._asleep = False
            os.eventfd_write(self._wake, 1)

    def look(self) -> None:
        """Notice now if the connection has died while nobody looked."""
        self.check_process()
        with self.lock:
            if self._socket is not None and not self._driving:
                self._read()
        self.call_back()

    @property
    def is_driven(self) -> bool:
        """Whether a thread drives."""
        return self._driving

    # -- one turn ----------------------------------------------------------------------------------

    def _turn(self, promise: Promise[T] | None, deadline: float | None) -> None:
        """Send what there is, wait for something to happen, take it in."""
        core = self.core
        with self.lock:
            if self.is_forked:
                raise fork.refusal()
            if self._closed and core.fatal is not None:
                raise core.fatal
            while core.expiring and self._read():
                pass  # what has come is no answer that is missing, however late this thread gets to it
            core.tick()
            if core.abort and self._socket is not None:
                self._drop(core.abort)
            if core.connection_due():
                core.connecting()
                connect = True
            else:
                connect = False
                if self._socket is not None:
                    self._write()
            pause = 0.0 if core.later and not self._calling else self._pause(promise, deadline)
            self._asleep = pause > 0
        if connect:
            self._connect(deadline)
        else:
            if pause > 0:
                self._sleep(pause)
            elif deadline is not None and (self._calling or not core.later) and time.monotonic() >= deadline:
                raise TimeoutError
            with self.lock:
                self._asleep = False
                self._read()
        if core.later and not self._calling:
            self._calling = threading.get_ident()
            try:
                self.call_back()
            finally:
                self._calling = 0

    def _pause(self, promise: Promise[T] | None, deadline: float | None) -> float:
        if promise is not None and promise.done:
            return 0.0
        now = time.monotonic()
        until = min(self.core.wakeup(), now + MOST_SLEEP)
        if deadline is not None and deadline < until:
            until = deadline
        return until - now

    def _sleep(self, pause: float) -> None:
        for descriptor, _ in self._poll.poll(pause * 1000):
            if descriptor == self._wake:
                os.eventfd_read(self._wake)

    def call_back(self) -> None:
        """Run the callbacks of users that are due; outside of the lock."""
        later = self.core.later
        while later:
            call = later.popleft()
            try:
                call()
            except Exception:
                log.exception("a callback for an answer failed")

    def check_process(self) -> None:
        """Raise ProcessForked in a child of the process that opened the connection, Misuse in its partitioner."""
        if self.is_forked:
            raise fork.refusal()
        check_asking(self.core.asking, self.core.thread())

    # -- the socket --------------------------------------------------------------------------------

    def _connect(self, deadline: float | None) -> None:
        timeout = self.core.options.timeout
        if deadline is not None:
            timeout = max(0.001, min(timeout, deadline - time.monotonic()))
        try:
            connection = open_socket(self._address, timeout)
        except BaseException as error:
            with self.lock:
                tls.end_if_untrusted(self.core, self._address, error)
                self.core.lost(f"cannot connect to {self._address.place}: {error}")
            if not isinstance(error, OSError):
                raise
            return
        with self.lock:
            if self._closed:
                connection.close()
                return
            self._socket = connection
            self._unsent = memoryview(b"")
            self._wants_write = False
            self._poll.register(connection, select.POLLIN)
            self.core.connected()
            self._write()

    def _write(self) -> None:
        """Send as much as the socket takes."""
        core, connection = self.core, self._socket
        if connection is None:
            return
        try:
            while self._unsent or core.output_bytes:
                if not self._unsent:
                    self._unsent = memoryview(b"".join(core.take_output()))
                sent = connection.send(self._unsent)
                self._unsent = self._unsent[sent:]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            self._drop(f"sending failed: {error}")
            return
        wants = bool(self._unsent)
        if wants is not self._wants_write:
            self._wants_write = wants
            self._poll.modify(connection, select.POLLIN | (select.POLLOUT if wants else 0))

    def _read(self) -> bool:
        """Take in what has come; whether there was anything."""
        connection, core = self._socket, self.core
        if connection is None:
            return False
        try:
            data = connection.recv(RECEIVE_BYTES)
            if not data:
                self._drop("the broker closed the connection")
                return False
            core.received(data)
            while isinstance(connection, ssl.SSLSocket) and connection.pending():
                core.received(connection.recv(RECEIVE_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            self._drop(f"receiving failed: {error}")
            return False
        if core.abort:
            self._drop(core.abort)
        return True

    def _drop(self, reason: str) -> None:
        self._close_socket()
        self.core.lost(reason)

    def _close_socket(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            self._poll.unregister(connection)
            connection.close()
        self._unsent = memoryview(b"")
        self._wants_write = False

    # -- the background thread ---------------------------------------------------------------------

    def _background(self) -> None:
        while True:
            self._work.wait()
            with self.lock:
                if self._closed:
                    return
                leads = not self._driving and self._unattended()
                self._driving = self._driving or leads
                if not leads:
                    self._work.clear()
                    continue
            try:
                while self._unattended() and not self._closed:
                    self._turn(None, None)
            except Exception:
                log.exception("the client's thread failed; callers go on by themselves")
            finally:
                self._hand_over()

    # -- the end -----------------------------------------------------------------------------------

    def close(self, error: errors.TxBrokerError) -> None:
        """Close the socket; everything unanswered fails."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._close_socket()
            self.core.stop(error)
            self._work.set()
            for follower in self._followers:
                follower.set()
            self.wake()
        self.call_back()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)
        with self.lock:
            if not self._driving:
                self._close_wake()

    def _close_wake(self) -> None:
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def forked(self) -> None:
        """In a child: let go of the parent's socket without a word to the broker."""
        self.is_forked = True
        self.lock = threading.Lock()
        if self._socket is not None:
            os.close(self._socket.detach())
            self._socket = None


def open_socket(address: Address, timeout: float) -> socket.socket:
    """Connect, greet TLS; the socket returned does not block. Raises ``OSError``."""
    if address.kind == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            connection.connect(address.path)
        except BaseException:
            connection.close()
            raise
    else:
        connection = socket.create_connection((address.host, address.port), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        context = tls.context(address)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname=address.host)
    connection.setblocking(False)
    return connection
