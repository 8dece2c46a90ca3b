"""The factory of connections: it makes the protocol of each that a peer opens."""

from __future__ import annotations

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol, ServerFactory

from txbroker.server.connections import Connections
from txbroker.server.protocol import BrokerProtocol
from txbroker.server.refused_connections import MAX_REFUSED, RefusingProtocol


class BrokerFactory(ServerFactory):
    """Makes the protocols of all connections of a broker, from whatever endpoint."""

    noisy = False

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:  # noqa: ARG002
        """Make one that serves its peer, or one that only says that there are too many connections."""
        connections = self.connections
        if len(connections.served) < connections.max_connections:
            return BrokerProtocol(connections)
        connections.refused += 1
        connections.refused_ever += 1
        return RefusingProtocol(connections) if len(connections.over_limit) < MAX_REFUSED else None
