"""Connections that come through proxies: who said for whom they are, and their beginning.

An address that is not named says nothing: a PROXY header from there is no message of the protocol, and ends the
connection as any other bytes do. A named one must begin with a header, in the clear, also before TLS.
"""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.interfaces import IAddress, IProtocolFactory, ITransport
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from zope.interface import directlyProvides, providedBy

from txbroker.errors import PeerViolation
from txbroker.server.connections.connections import Connections
from txbroker.server.connections.peer_facts import ProxiedAddress
from txbroker.server.connections.strangers import MAX_STRANGERS
from txbroker.server.endpoints.proxy_header import parse
from txbroker.server.settings.proxies import Proxies
from txbroker.wire.codec import encode
from txbroker.wire.messages import Refused


class ProxyFactory(WrappingFactory):
    """Has named proxies begin with a header, and makes the protocol of the client that it names.

    ``tells``: what is wrong is sent to the peer, which understands it if there is no TLS above.
    """

    noisy = False

    def __init__(
        self, wrapped: IProtocolFactory, proxies: Proxies, connections: Connections, tells: bool
    ) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call]
        self.proxies = proxies
        self.connections = connections
        self.tells = tells

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper:
        """Make the protocol of a connection; none if there are too many strangers to wait for another one's header."""
        if not self.proxies.has(str(getattr(addr, "host", ""))):
            return cast(ProtocolWrapper, self.wrappedFactory.buildProtocol(cast(Any, addr)))
        connections = self.connections
        if len(connections.strangers) >= MAX_STRANGERS:
            connections.refused += 1
            connections.refused_ever += 1
            return cast(ProtocolWrapper, None)  # which Twisted takes, though its types do not say so
        return ProxyProtocol(self)


class ProxyProtocol(ProtocolWrapper):
    """A connection from a proxy. Its peer is the client that the header names, for all that is above.

    Until then it is a stranger of no address: many clients come from one proxy.
    """

    log = Logger()
    factory: ProxyFactory

    def __init__(self, factory: ProxyFactory) -> None:
        super().__init__(cast(Any, factory), cast(Any, None))
        self._made: Any = None
        self._peer: IAddress | None = None
        self._data = b""
        self._since = factory.connections.clock.seconds()

    def makeConnection(self, transport: ITransport) -> None:
        """Wait for the header."""
        directlyProvides(self, providedBy(transport))
        Protocol.makeConnection(self, transport)
        self.factory.registerProtocol(self)  # type: ignore[no-untyped-call]
        connections = self.factory.connections
        connections.arriving.add(self)
        connections.strangers.add(self)

    def dataReceived(self, data: bytes) -> None:
        """Take the header, and pass on what comes after it."""
        if self._made is not None:
            self._made.dataReceived(data)
        elif self in self.factory.connections.arriving:
            self._data += data
            try:
                header = parse(self._data)
            except PeerViolation as error:
                self._drop(error)
                return
            if header is not None:
                self._begin(header.host, header.port, self._data[header.size :])

    def _begin(self, host: str, port: int, rest: bytes) -> None:
        self._data = b""
        proxy = cast(Any, self.transport).getPeer()
        self._peer = ProxiedAddress(host or proxy.host, port or proxy.port)
        self._has_arrived()
        made = self.factory.wrappedFactory.buildProtocol(self._peer)
        if made is None:
            cast(Any, self.transport).abortConnection()
            return
        self.wrappedProtocol = self._made = made
        made.makeConnection(self)
        if rest:
            made.dataReceived(rest)

    def getPeer(self) -> IAddress:
        """Return the client's address; that of the proxy before its header."""
        return self._peer or cast(IAddress, cast(Any, self.transport).getPeer())

    def check(self, now: float) -> None:
        """Drop it if its header takes too long."""
        limit = self.factory.connections.limits.hello
        if now - self._since > limit:
            self._drop(PeerViolation(f"it is a proxy, and has not said for whom within {limit:g} s"))

    def _drop(self, error: PeerViolation) -> None:
        transport = cast(Any, self.transport)
        peer = self.factory.connections.name_of(self.getPeer())
        if self.factory.connections.may_tell():
            self.log.warn(
                "dropping {peer}: {reason}", peer=peer, reason=str(error), error=type(error).__name__
            )
        self._has_arrived()
        if self.factory.tells:
            transport.write(encode(Refused(0, type(error).__name__, f"{error}; the connection is closed")))
        transport.loseConnection()

    def abort(self) -> None:
        """Close it at once."""
        cast(Any, self.transport).abortConnection()

    def _has_arrived(self) -> None:
        connections = self.factory.connections
        connections.arriving.discard(self)
        connections.strangers.discard(self)

    def connectionLost(self, reason: Any = None) -> None:
        """Forget it."""
        self._has_arrived()
        self.factory.unregisterProtocol(self)  # type: ignore[no-untyped-call]
        if self._made is not None:
            self._made.connectionLost(reason)
