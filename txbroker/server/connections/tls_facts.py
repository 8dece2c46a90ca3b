"""The facts of a connection over TLS: which certificate it was made with, and what its peer's certificate proves.

They are for binding a login to its channel (RFC 5929), and for a login by certificate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from twisted.protocols.policies import ProtocolWrapper


class TlsFacts(NamedTuple):
    """The facts of one connection. Those of the peer are there once the handshake is done."""

    server_certificate: bytes
    """Our certificate that this connection was made with, in DER. After a renewal the newest is another one."""
    server_signature_hash: str
    """The name, for ``hashlib.new``, of the hash of ``tls-server-end-point``: that of the certificate's signature, but
    SHA-256 for MD5 and SHA-1. It is "" for a signature without one (Ed25519), for which there is no such binding.
    """
    peer_subject: str
    """The subject of the peer's certificate, of one of our issuers, as in RFC 4514; "" without one, or if
    it has none (those of SPIFFE have only names).
    """
    peer_names: list[str]
    """Its alternative names: ``DNS:host``, ``email:a@b``, ``URI:spiffe://x/y``, ``IP:::1``; no other kinds."""


def tls_facts(transport: Any) -> TlsFacts | None:
    """Return the facts of a connection, from the transport of its protocol; None without TLS, or once it is lost."""
    try:
        from twisted.protocols.tls import TLSMemoryBIOProtocol
    except ImportError:  # without the packages there is no TLS
        return None
    while isinstance(transport, ProtocolWrapper) and not isinstance(transport, TLSMemoryBIOProtocol):
        transport = transport.transport
    handle = transport.getHandle() if isinstance(transport, TLSMemoryBIOProtocol) else None
    own = None if handle is None else handle.get_certificate()
    if handle is None or own is None:
        return None
    from cryptography.hazmat.primitives.serialization import Encoding

    certificate = own.to_cryptography()
    subject, names = _peer(handle.get_peer_certificate())
    return TlsFacts(certificate.public_bytes(Encoding.DER), _signature_hash(certificate), subject, names)


def _signature_hash(certificate: Any) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        found = certificate.signature_hash_algorithm
    except UnsupportedAlgorithm:
        return ""
    name = "" if found is None else str(found.name)
    return "sha256" if name in ("md5", "sha1") else name


def _peer(found: Any) -> tuple[str, list[str]]:
    """Return subject and names of a certificate; nothing of one that cannot be read to its end."""
    from cryptography import x509

    if found is None:
        return "", []
    certificate = found.to_cryptography()
    try:
        subject = certificate.subject.rfc4514_string()
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return subject, []
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return "", []
    kinds: dict[type, str] = {
        x509.DNSName: "DNS",
        x509.RFC822Name: "email",
        x509.UniformResourceIdentifier: "URI",
        x509.IPAddress: "IP",
    }
    return subject, [f"{kinds[type(name)]}:{name.value}" for name in extension.value if type(name) in kinds]
