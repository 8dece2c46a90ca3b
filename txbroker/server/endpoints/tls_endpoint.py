"""The endpoint of TLS: ``tls:PORT:interface=HOST:cert=FILE:key=FILE[:ca=FILE][:clients=none|optional|required]``.

It is our own, because Twisted's ``ssl:`` reads its files once, and knows no certificates of clients.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from twisted.internet.abstract import isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from zope.interface import implementer

from txbroker.server.endpoints.certificate_files import CertificateFiles, ClientCertificates
from txbroker.server.endpoints.certificates import Certificates, KnownCertificates

KIND: Final = "tls"
FORM: Final = r"tls:7655:interface=127.0.0.1:cert=FILE:key=FILE"

_FIELDS: Final = ("port", "interface", "cert", "key", "ca", "clients")


Wrap = Callable[[IProtocolFactory], IProtocolFactory]


class TlsDescription(NamedTuple):
    """What the description of an endpoint says."""

    port: int
    interface: str
    files: CertificateFiles

    @property
    def listener(self) -> str:
        """The listener's address as clients have it; without an interface it is ``*``."""
        host = f"[{self.interface}]" if ":" in self.interface else self.interface or "*"
        return f"{KIND}:{host}:{self.port}"


def described(description: str) -> TlsDescription:
    """Return what a description says; raises ``ValueError``. A colon in a value is written ``\\:``, as for Twisted."""
    _, *fields = _split(description)
    found: dict[str, str] = {}
    for position, field in enumerate(fields):
        name, equals, value = field.partition("=")
        if not equals and position == 0:
            name, value = "port", field
        if name not in _FIELDS:
            raise ValueError(f"{field!r} is none of {', '.join(each + '=' for each in _FIELDS)}")
        if name in found:
            raise ValueError(f"{name} is there twice")
        found[name] = value
    port = found.get("port", "")
    if not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ValueError(f"{port!r} is not a port; those are 1 to 65535, and 0 for any that is free")
    return TlsDescription(int(port), found.get("interface", ""), _files(found))


def _files(found: dict[str, str]) -> CertificateFiles:
    try:
        clients = ClientCertificates(found.get("clients", "none"))
    except ValueError:
        choices = ", ".join(each.value for each in ClientCertificates)
        raise ValueError(f"clients is {found['clients']!r}, it must be one of {choices}") from None
    certificate, ca = found.get("cert", ""), found.get("ca", "")
    if not certificate:
        raise ValueError("it names no certificate (cert=FILE)")
    if clients is ClientCertificates.NONE and ca:
        raise ValueError("ca= is for certificates of clients: say clients=optional or clients=required, too")
    if clients is not ClientCertificates.NONE and not ca:
        raise ValueError(f"clients={clients.value} needs the issuers of their certificates (ca=FILE)")
    key = found.get("key") or certificate
    return CertificateFiles(
        os.path.abspath(certificate), os.path.abspath(key), os.path.abspath(ca) if ca else "", clients
    )


def _split(description: str) -> list[str]:
    """Return the fields between colons that are not escaped, without their escapes."""
    fields = re.findall(r"((?:[^:\\]|\\.|\\$)*)(?::|$)", description)
    if fields[-1] == "" and not description.endswith(":"):
        fields.pop()  # the empty match at the end
    return [re.sub(r"\\(.)", r"\1", field) for field in fields]


@implementer(IStreamServerEndpoint)
class TlsServerEndpoint:
    """Listens with the newest certificates of its files, on IPv4 or IPv6. Loads them; raises InvalidSetting."""

    def __init__(
        self, reactor: Any, description: TlsDescription, known: KnownCertificates, backlog: int
    ) -> None:
        self.interface = description.interface
        self.clients = description.files.clients
        self.certificates: Certificates = known.of(description.files, description.listener)
        kind = TCP6ServerEndpoint if isIPv6Address(self.interface) else TCP4ServerEndpoint
        self._tcp = kind(reactor, description.port, backlog, self.interface)
        self._reactor = reactor
        self._known = known

    def listen(
        self, protocolFactory: IProtocolFactory, below: Wrap | None = None
    ) -> Deferred[IListeningPort]:
        """Listen; the factory's protocols are connected before the handshake. ``below`` wraps what makes the TLS."""
        from txbroker.server.endpoints.tls_connections import TlsFactory

        factory: Any = TlsFactory(
            self.certificates, protocolFactory, self._reactor, self._known.handshakes(self._reactor)
        )
        if below is not None:
            factory = below(factory)
        found: Deferred[IListeningPort] = self._tcp.listen(factory)  # type: ignore[no-untyped-call]
        return found
