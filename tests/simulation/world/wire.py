"""A simulated connection between a client and the broker's real protocol: bytes wait, come in pieces, or get lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

_LOST = Failure(ConnectionLost())


class _Address(NamedTuple):
    host: str
    port: int


class Connection:
    """Twisted's transport for the broker, the client's end for the client.

    ``to_broker`` and ``to_client`` are the bytes on their way. ``buffer`` is what the network takes before the broker's
    side is told to wait.
    """

    def __init__(self, factory: Any, port: int, later: Callable[..., Any], buffer: int) -> None:
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.client_gone = self.broker_gone = False
        self.is_cut = False
        """Whether the last that came to the broker was not all that was sent: it may have a part of a message."""
        self.certificate = ""
        """By what its client wants to come in, if it has rights."""
        self._later = later
        self._buffer = buffer
        self._address = _Address("10.0.0.1", port)
        self._reading = True
        self._closing = self._aborted = False
        self._producer: Any = None
        self._blocked = False
        self.protocol = factory.buildProtocol(None)
        if self.protocol is None:
            self.broker_gone = True
        else:
            self.protocol.makeConnection(self)

    # -- the broker's side: ITransport ----------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send. What nobody will read is lost, and what comes after an abort."""
        if not self.client_gone and not self._aborted:
            self.to_client += data
            if self._producer is not None and not self._blocked and len(self.to_client) > self._buffer:
                self._blocked = True
                self._producer.pauseProducing()

    def loseConnection(self) -> None:
        """Close once all has been sent."""
        self._closing = True
        if not self.to_client:
            self._later(0, self._end)

    def abortConnection(self) -> None:
        """Close now."""
        self._aborted = True
        self.to_client.clear()
        self._later(0, self._end)

    def pauseProducing(self) -> None:
        """Do not read."""
        self._reading = False

    def resumeProducing(self) -> None:
        """Read again."""
        self._reading = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Who is to be told to wait."""
        self._producer = producer

    def getPeer(self) -> _Address:
        """The client's address."""
        return self._address

    def _end(self) -> None:
        if not self.broker_gone:
            self.broker_gone = True
            self.to_broker.clear()
            self.protocol.connectionLost(_LOST)

    @property
    def is_closing(self) -> bool:
        """Whether the broker has closed it, or is about to."""
        return self._closing or self._aborted or self.broker_gone

    # -- the network ------------------------------------------------------------------------------------

    def deliver(self, size: int) -> bool:
        """Bring bytes to the broker, and the client's end after the last one; says whether there was anything."""
        if self.broker_gone or not self._reading:
            if self.client_gone and not self.broker_gone:
                self._end()  # a socket that is not read is found broken when it is written to, or by its timers
                return True
            return False
        if self.to_broker:
            data = bytes(self.to_broker[:size])
            del self.to_broker[:size]
            self.is_cut = bool(self.to_broker)
            self.protocol.dataReceived(data)
            return True
        if self.client_gone:
            self._end()
            return True
        return False

    def take(self, size: int) -> bytes:
        """What has come to the client, at most so many bytes."""
        data = bytes(self.to_client[:size])
        del self.to_client[:size]
        if not self.to_client:
            if self._blocked:
                self._blocked = False
                self._later(0, self._drained)
            if self._closing:
                self._later(0, self._end)
        return data

    def _drained(self) -> None:
        if not self.broker_gone:
            self._producer.resumeProducing()

    def leave(self, kept: int) -> None:
        """The client is gone; of what it has sent only the first ``kept`` bytes arrive."""
        self.client_gone = True
        del self.to_broker[kept:]
        self.to_client.clear()
        if self._closing:
            self._later(0, self._end)
        elif self._blocked:
            self._blocked = False
            self._later(0, self._drained)
