"""The factory of connections: it makes the protocol of each that a peer opens."""

from __future__ import annotations

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol, ServerFactory

from txbroker.server.connections.connections import Connections
from txbroker.server.connections.languages import OwnLanguage, Speak
from txbroker.server.connections.peer_facts import facts_of
from txbroker.server.connections.protocol import BrokerProtocol, Learn
from txbroker.server.connections.refused_connections import MAX_REFUSED, RefusingProtocol


class BrokerFactory(ServerFactory):
    """Makes the protocols of all connections of a broker, from whatever endpoint."""

    noisy = False

    def __init__(
        self,
        connections: Connections,
        learn: Learn = facts_of,
        is_limited: bool = True,
        speak: Speak = OwnLanguage,
    ) -> None:
        self.connections = connections
        self._speak = speak
        self._learn = learn
        self._is_limited = is_limited

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Make one that serves its peer, or one that only says that there are too many connections."""
        connections = self.connections
        why = connections.strangers.obstacle(addr)
        if not self._is_limited:
            why = ""
        elif not why and len(connections.served) >= connections.max_connections:
            why = f"there are {connections.max_connections} connections already"
        if not why:
            return BrokerProtocol(connections, self._learn, self._speak)
        connections.refused += 1
        connections.refused_ever += 1
        is_own = self._speak is OwnLanguage  # only this has words for it before its peer has said anything
        if not is_own:
            return None
        return RefusingProtocol(connections, why) if len(connections.over_limit) < MAX_REFUSED else None
