"""Connections over TLS: each is made with the certificates that are the newest when it begins, and keeps them. Its
handshake begins when the line of all handshakes allows.

This needs the packages that the extra ``tls`` brings.
"""

from __future__ import annotations

from typing import Any, cast

from OpenSSL import SSL
from twisted.internet.interfaces import (
    IAddress,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
    IReactorTime,
)
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer

from txbroker.server.connections.protocol import BrokerProtocol
from txbroker.server.connections.read_limits import Pause
from txbroker.server.connections.refused_connections import RefusingProtocol
from txbroker.server.endpoints.certificates import Certificates
from txbroker.server.endpoints.handshakes import HandshakeLine


@implementer(IOpenSSLServerConnectionCreator)
class _Newest:
    """Makes the TLS of a connection."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:  # noqa: ARG002
        """Make it of the context that is the newest now."""
        return SSL.Connection(self._certificates.proven.context, None)


class TlsConnection(TLSMemoryBIOProtocol):
    """A connection, which is not read before its handshake may begin."""

    factory: TlsFactory
    _early: bytes | None = None
    """What was read before the handshake might begin; None: it may."""

    def makeConnection(self, transport: Any) -> None:
        """Begin, or wait."""
        super().makeConnection(transport)  # type: ignore[no-untyped-call]
        if not self.factory.handshakes.enter(self, self._go_on):
            self._early = b""
            if isinstance(self.wrappedProtocol, BrokerProtocol):
                self.wrappedProtocol.pause(Pause.HANDSHAKE)  # so that its peer's time is not counted
            else:
                transport.pauseProducing()

    def _go_on(self) -> None:
        early, self._early = self._early, None
        if early:
            self.dataReceived(early)
        if isinstance(self.wrappedProtocol, BrokerProtocol):
            self.wrappedProtocol.resume(Pause.HANDSHAKE)
        else:
            cast(Any, self.transport).resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        """Take bytes of TLS; those that came with the header of a proxy wait for the handshake."""
        if self._early is None:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        else:
            self._early += data

    def connectionLost(self, reason: Any = None) -> None:
        """End."""
        self.factory.handshakes.leave(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class TlsFactory(TLSMemoryBIOFactory):
    """Puts TLS below the protocols of a factory."""

    protocol = TlsConnection

    def __init__(
        self,
        certificates: Certificates,
        wrapped: IProtocolFactory,
        clock: IReactorTime,
        handshakes: HandshakeLine,
    ) -> None:
        super().__init__(cast(Any, _Newest(certificates)), False, wrapped, clock)
        self.handshakes = handshakes

    def buildProtocol(self, addr: IAddress | None) -> TLSMemoryBIOProtocol:
        """Make the protocol of a connection; none if there are too many, which Twisted's own would fail at.

        Also none that would only say so, if others wait for their handshakes.
        """
        line = self.handshakes
        if line.is_full:
            return cast(TLSMemoryBIOProtocol, None)
        wrapped = self.wrappedFactory.buildProtocol(cast(Any, addr))
        if wrapped is None or (isinstance(wrapped, RefusingProtocol) and not line.is_free):
            return cast(TLSMemoryBIOProtocol, None)
        return TlsConnection(self, wrapped)  # type: ignore[no-untyped-call]
