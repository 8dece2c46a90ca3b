"""The Twisted endpoint of a broker's address."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from zope.interface import implementer

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
        import OpenSSL
        from twisted.protocols.tls import TLSMemoryBIOFactory  # noqa: F401 - fails clearly without pyOpenSSL
    except ImportError as error:
        raise Misuse(
            f"the packages for TLS with Twisted are missing here ({error}); nothing was opened. Install them with: "
            "pip install 'txbroker[tls]'"
        ) from error
    if address.cert and int(OpenSSL.__version__.partition(".")[0]) < 25:
        raise Misuse(
            f"to show a certificate with Twisted, pyOpenSSL must be 25 or newer (here it is {OpenSSL.__version__}); "
            "nothing was opened"
        )
    tls.check(address)
    return _TlsEndpoint(tcp, address)


@implementer(IStreamClientEndpoint)
class _TlsEndpoint:
    """Connects over TLS. The files are read for each connection, so that they may be renewed."""

    def __init__(self, tcp: HostnameEndpoint, address: Address) -> None:
        self._tcp = tcp
        self._address = address

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect; fails if the files cannot be used now."""
        try:
            tls.check(self._address)
            options = _options(self._address)
        except Exception as error:  # noqa: BLE001 - whatever two libraries raise for files that change
            return fail(error)
        found: Deferred[IProtocol] = wrapClientTLS(options, self._tcp).connect(protocolFactory)
        return found


def _options(address: Address) -> Any:
    """Return what makes the TLS of a connection."""
    from cryptography.x509 import load_pem_x509_certificates
    from OpenSSL import crypto
    from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates

    root, own = None, dict[str, Any]()
    if address.ca:
        issuers = load_pem_x509_certificates(_content(address.ca))
        root = trustRootFromCertificates(
            [Certificate(crypto.X509.from_cryptography(each)) for each in issuers]
        )
    if address.cert:
        key = crypto.load_privatekey(crypto.FILETYPE_PEM, _content(address.key or address.cert))
        own["privateKey"] = key.to_cryptography_key()
        own["certificate"], *own["extraCertChain"] = load_pem_x509_certificates(_content(address.cert))
    return optionsForClientTLS(address.host, trustRoot=root, extraCertificateOptions=own)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
