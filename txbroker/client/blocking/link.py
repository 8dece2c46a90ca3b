"""The socket of the blocking client: it sends the bytes of a core's requests and receives those of its answers."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from txbroker.client.core.core import Core
from txbroker.client.core.url import Address
from txbroker.client.loop import tls
from txbroker.client.loop.poller import Poller

RECEIVE_BYTES = 1 << 18


class Link:
    """One connection at a time, and the bytes still to be sent on it. Call every method under the driver's lock.

    ``mend`` repairs what an interrupt may have left half done.
    """

    def __init__(self, core: Core, poller: Poller, mend: Callable[[], None], address: Address) -> None:
        self.socket: socket.socket | None = None
        self.unsent = memoryview(b"")
        self.wants_write = False
        self._core = core
        self._poller = poller
        self._mend = mend
        self._address = address

    @property
    def is_up(self) -> bool:
        """Return whether there is a connection."""
        return self.socket is not None

    def take(self, connection: socket.socket) -> None:
        """Begin with a new connection: say hello."""
        self.socket = connection
        self.unsent = memoryview(b"")
        self.wants_write = False
        self._poller.watch(connection)
        self._core.connected()
        self.write()

    def write(self) -> None:
        """Send as many bytes as the socket takes."""
        core, connection = self._core, self.socket
        if connection is None:
            return
        try:
            while self.unsent or core.output_bytes:
                if not self.unsent:
                    self.unsent = memoryview(b"".join(core.take_output()))
                sent = connection.send(self.unsent)
                self.unsent = self.unsent[sent:]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            tls.end_if_untrusted(core, self._address, self._alert(connection))
            self.drop(f"sending failed: {error}")
            return
        except BaseException as error:
            self.torn(error)
            raise
        wants = bool(self.unsent)
        if wants is not self.wants_write:
            self.wants_write = wants
            self._poller.watch(connection, for_writing=wants)

    def read(self) -> bool:
        """Receive the bytes that have come; return whether there were any."""
        connection, core = self.socket, self._core
        if connection is None:
            return False
        try:
            data = connection.recv(RECEIVE_BYTES)
            if not data:
                self.drop("the broker closed the connection")
                return False
            core.received(data)
            while isinstance(connection, ssl.SSLSocket) and connection.pending():
                core.received(connection.recv(RECEIVE_BYTES))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            tls.end_if_untrusted(core, self._address, error)
            self.drop(f"receiving failed: {error}")
            return False
        if core.abort:
            self.drop(core.abort)
        return True

    def _alert(self, connection: socket.socket) -> OSError | None:
        """Return why the broker has closed the connection, if that came before the bytes that it did not take."""
        try:
            while not self._core.session and connection.recv(RECEIVE_BYTES):
                pass
        except OSError as error:
            return error
        return None

    def torn(self, error: BaseException) -> None:
        """Drop the connection: an interrupt came in a step that must be done as a whole, and how much is done is
        unknown.
        """
        self.drop(f"interrupted while the connection was worked on ({error!r:.80})")
        self._mend()

    def drop(self, reason: str) -> None:
        """Close the connection, and inform the core."""
        self.close()
        self._core.lost(reason)

    def close(self) -> None:
        """Close the connection."""
        connection, self.socket = self.socket, None
        if connection is not None:
            with suppress(KeyError):  # an interrupt came before it was registered
                self._poller.forget(connection)
            connection.close()
        self.unsent = memoryview(b"")
        self.wants_write = False

    def forked(self) -> None:
        """In a child process, release the parent's socket without sending anything to the broker."""
        if self.socket is not None:
            os.close(self.socket.detach())
            self.socket = None


def open_socket(address: Address, timeout: float) -> socket.socket:
    """Connect, with TLS if the address says so, and return a socket that does not block. Raises ``OSError``."""
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
            try:
                connection.getpeername()  # if it was cut, Python 3.11's wrap_socket loses the descriptor
                connection = context.wrap_socket(connection, server_hostname=address.host)
            except BaseException:
                connection.close()
                raise
    connection.setblocking(False)
    return connection
