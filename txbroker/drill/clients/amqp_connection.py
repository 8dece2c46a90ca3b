"""A blocking connection to the broker's AMQP 0-9-1 listener, with which a drill's clients speak methods."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from txbroker.amqp import connection_methods as connecting
from txbroker.amqp import methods
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.framing import (
    BODY,
    HEADER,
    METHOD,
    OVERHEAD,
    PROTOCOL_HEADER,
    content_frames,
    method_frame,
)
from txbroker.amqp.method_codec import decode_method

_FRAME: Final = Struct(">BHI")
_CONTENT: Final = Struct(">HHQ")
FRAME_MAX: Final = 131_072
M = TypeVar("M", bound=Method)


class AmqpLost(Exception):
    """The connection is gone: what was not answered may have been done or not."""


class AmqpRefused(Exception):
    """The broker has closed a channel, for this reason; what it had not committed is undone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Arrival(NamedTuple):
    """What has come on a channel: a method, and the properties and body of its content."""

    channel: int
    method: Method
    properties: bytes = b""
    body: bytes = b""


class AmqpConnection:
    """A connection over TCP to a port of this machine. All calls wait, ``timeout`` seconds at most, and raise
    :class:`AmqpLost`, after which it cannot be used any more.
    """

    def __init__(self, port: int, timeout: float) -> None:
        self._timeout, self._came = timeout, bytearray()
        self._kept: dict[int, deque[Arrival]] = {}
        """What has come on each channel and nobody has asked for yet."""
        self._content: dict[int, tuple[Method, bytes, int, bytearray]] = {}
        """Contents that have begun: the method, the properties, the size of the body, and what is there of it."""
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        except OSError as error:
            raise AmqpLost(f"nobody listens: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._write(PROTOCOL_HEADER)
        self.wait(0, connecting.ConnectionStart)
        self.tell(0, connecting.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        self.wait(0, connecting.ConnectionTune)
        self.tell(0, connecting.ConnectionTuneOk(16, FRAME_MAX, 0))
        self.ask(0, connecting.ConnectionOpen("/"), connecting.ConnectionOpenOk)

    def close(self) -> None:
        """Close the connection at once, without a word: what it had is returned."""
        self._socket.close()

    def tell(self, channel: int, *several: Method) -> None:
        """Send methods."""
        self._write(b"".join(method_frame(channel, each) for each in several))

    def ask(self, channel: int, method: Method, kind: type[M]) -> M:
        """Send a method; return its answer, of that kind."""
        self.tell(channel, method)
        return self.wait(channel, kind)

    def publish(self, channel: int, exchange: str, routing_key: str, properties: bytes, body: bytes) -> None:
        """Send a message, which must find a queue."""
        head = method_frame(channel, methods.BasicPublish(0, exchange, routing_key, True, False))
        self._write(b"".join((head, *content_frames(channel, properties, body, FRAME_MAX))))

    def wait(self, channel: int, kind: type[M]) -> M:
        """Return the next method of a kind on a channel; what else comes is kept."""
        found = self.next(channel, lambda method: isinstance(method, kind), self._timeout)
        if found is None:
            raise AmqpLost(f"no {kind.__name__} within {self._timeout} s")
        assert isinstance(found.method, kind)
        return found.method

    def next(self, channel: int, wanted: Callable[[Method], bool], seconds: float) -> Arrival | None:
        """Return the next on a channel that is wanted, None if none comes in time.

        Raises :class:`AmqpRefused` if the broker has closed the channel.
        """
        deadline, kept = time.monotonic() + seconds, self._kept.setdefault(channel, deque())
        while True:
            for arrival in kept:
                if isinstance(arrival.method, connecting.ChannelClose):
                    raise AmqpRefused(arrival.method.reply_code, arrival.method.reply_text)
                if wanted(arrival.method):
                    kept.remove(arrival)
                    return arrival
            if not self._read(deadline - time.monotonic()):
                return None

    # -- bytes -------------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(data)
        except OSError as error:
            raise AmqpLost(f"writing failed: {error}") from error

    def _read(self, seconds: float) -> bool:
        """Read what has come, within so many seconds; return whether something has."""
        self._socket.settimeout(max(seconds, 0.0001))
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        except OSError as error:
            raise AmqpLost(f"reading failed: {error}") from error
        if not data:
            raise AmqpLost("the broker has closed the connection")
        self._came += data
        while len(self._came) >= OVERHEAD:
            kind, channel, size = _FRAME.unpack_from(self._came)
            if len(self._came) < size + OVERHEAD:
                break
            payload = bytes(self._came[7 : 7 + size])
            del self._came[: size + OVERHEAD]
            self._take(kind, channel, payload)
        return True

    def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == METHOD:
            method = decode_method(payload)
            if isinstance(method, connecting.ConnectionClose):
                raise AmqpLost(f"the broker closes the connection: {method.reply_code} {method.reply_text}")
            if isinstance(method, (methods.BasicDeliver, methods.BasicGetOk, methods.BasicReturn)):
                self._content[channel] = (method, b"", -1, bytearray())
                return
            self._keep(Arrival(channel, method))
        elif kind in (HEADER, BODY):
            method, properties, size, body = self._content.pop(channel)
            if kind == HEADER:
                size, properties = _CONTENT.unpack_from(payload)[2], payload[_CONTENT.size :]
            else:
                body += payload
            if len(body) == size:
                self._keep(Arrival(channel, method, properties, bytes(body)))
            else:
                self._content[channel] = (method, properties, size, body)

    def _keep(self, arrival: Arrival) -> None:
        self._kept.setdefault(arrival.channel, deque()).append(arrival)
