"""Connections over the limit: each gets the reason, and is closed as soon as its peer sends something or time is up."""

from __future__ import annotations

from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from txbroker.errors import LimitExceeded
from txbroker.server.connections.connections import Connections
from txbroker.wire.codec import encode
from txbroker.wire.messages import Refused

MAX_REFUSED = 256
"""So many connections over the limit get the reason; further ones are closed without it."""

LINGER = 2.0
"""Seconds that a refused peer has for reading the reason."""


class RefusingProtocol(Protocol):
    """A connection over the limit: it sends the reason, and closes as soon as its peer sends something or time
    is up.
    """

    def __init__(self, connections: Connections, why: str) -> None:
        self._connections = connections
        self._why = why
        self._since = connections.clock.seconds()

    def connectionMade(self) -> None:
        """Say why."""
        connections, transport = self._connections, self.transport
        assert transport is not None
        error = LimitExceeded(f"{self._why}; nothing was read. Try again later")
        connections.over_limit.add(self)
        transport.write(encode(Refused(0, type(error).__name__, str(error))))

    def dataReceived(self, data: bytes) -> None:  # noqa: ARG002
        """Close: the peer has its answer, whatever it sends."""
        assert self.transport is not None
        self.transport.loseConnection()

    def check(self, now: float) -> None:
        """Close it if its peer has had time to read why."""
        if now - self._since > LINGER:
            self.abort()

    def abort(self) -> None:
        """Close it at once."""
        assert self.transport is not None
        self.transport.abortConnection()  # type: ignore[attr-defined]

    def connectionLost(self, reason: Failure | None = None) -> None:  # noqa: ARG002
        """Forget it."""
        self._connections.over_limit.discard(self)
