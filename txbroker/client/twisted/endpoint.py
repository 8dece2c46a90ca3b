"""The Twisted endpoint of a broker's address."""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint

from txbroker.client.core.url import Address
from txbroker.client.loop import tls
from txbroker.errors import Misuse


def endpoint(reactor: Any, address: Address, timeout: float) -> IStreamClientEndpoint:
    """Return the endpoint; raises :class:`Misuse` if TLS lacks its packages, or its certificates cannot be read."""
    if address.kind == "unix":
        return UNIXClientEndpoint(reactor, address.path, timeout)
    tcp = HostnameEndpoint(reactor, address.host, address.port, timeout)
    if address.kind == "tcp":
        return tcp
    try:
        from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
        from twisted.protocols.tls import TLSMemoryBIOFactory  # noqa: F401 - fails clearly without pyOpenSSL
    except ImportError as error:
        raise Misuse(
            f"the packages for TLS with Twisted are missing here ({error}); nothing was opened. Install them with: "
            "pip install 'txbroker[tls]'"
        ) from error
    tls.check(address)
    root = None
    if address.ca:
        with open(address.ca, "rb") as file:
            root = trustRootFromCertificates([Certificate.loadPEM(file.read())])
    return wrapClientTLS(optionsForClientTLS(address.host, trustRoot=root), tcp)
