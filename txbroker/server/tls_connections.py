"""Connections over TLS: each is made with the certificates that are the newest when it begins, and keeps them.

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

from txbroker.server.certificates import Certificates


@implementer(IOpenSSLServerConnectionCreator)
class _Newest:
    """Makes the TLS of a connection."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:  # noqa: ARG002
        """Make it of the context that is the newest now."""
        return SSL.Connection(self._certificates.proven.context, None)


class TlsFactory(TLSMemoryBIOFactory):
    """Puts TLS below the protocols of a factory."""

    def __init__(self, certificates: Certificates, wrapped: IProtocolFactory, clock: IReactorTime) -> None:
        super().__init__(cast(Any, _Newest(certificates)), False, wrapped, clock)

    def buildProtocol(self, addr: IAddress | None) -> TLSMemoryBIOProtocol:
        """Make the protocol of a connection; none if there are too many, which Twisted's own would fail at."""
        wrapped = self.wrappedFactory.buildProtocol(cast(Any, addr))
        return cast(TLSMemoryBIOProtocol, None if wrapped is None else self.protocol(self, wrapped))
