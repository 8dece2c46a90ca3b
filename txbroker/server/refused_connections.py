"""Connections over the limit: each is told so, and closed as soon as its peer says something or time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from txbroker.errors import LimitExceeded
from txbroker.wire.codec import encode
from txbroker.wire.messages import Refused

if TYPE_CHECKING:
    from txbroker.server.connections import BrokerFactory

MAX_REFUSED = 256
"""So many connections over the limit are told so; more are closed without a word."""

LINGER = 2.0
"""Seconds that a refused peer has for reading why."""


class RefusingProtocol(Protocol):
    """A connection over the limit: told so, and closed as soon as its peer says something or time is up."""

    factory: BrokerFactory

    def connectionMade(self) -> None:
        """Say why."""
        factory, transport = self.factory, self.transport
        assert transport is not None
        self.since = factory.clock.seconds()
        error = LimitExceeded(
            f"there are {factory.max_connections} connections already; close some, or try again later"
        )
        factory.refusing.add(self)
        transport.write(encode(Refused(0, type(error).__name__, str(error))))

    def dataReceived(self, data: bytes) -> None:  # noqa: ARG002
        """Whatever it says: it has been answered."""
        assert self.transport is not None
        self.transport.loseConnection()

    def abort(self) -> None:
        """Time is up."""
        assert self.transport is not None
        self.transport.abortConnection()  # type: ignore[attr-defined]

    def connectionLost(self, reason: Failure | None = None) -> None:  # noqa: ARG002
        """Forget it."""
        self.factory.refusing.discard(self)
