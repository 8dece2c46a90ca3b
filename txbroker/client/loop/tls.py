"""TLS of a client: the certificates that it trusts, and its error for a refused one."""

from __future__ import annotations

import ssl

from txbroker.client.core.core import Core
from txbroker.client.core.url import Address
from txbroker.errors import CertificateRefused, Misuse


def check(address: Address) -> None:
    """Raise :class:`Misuse` if the address names a file of certificates that cannot be read."""
    if address.ca:
        try:
            context(address)
        except OSError as error:
            raise Misuse(
                f"the certificates in {address.ca} cannot be read ({error.strerror or error}); nothing was opened. "
                "The file must hold those to trust, in PEM"
            ) from error


def context(address: Address) -> ssl.SSLContext | None:
    """Return the context that checks the broker's certificate; None for an address without TLS. Raises ``OSError``.

    It is made for each connection, so that a file of certificates may be renewed.
    """
    return ssl.create_default_context(cafile=address.ca or None) if address.kind == "tls" else None


def end_if_untrusted(core: Core, address: Address, error: BaseException | None) -> None:
    """End a client that can never connect, because the broker's certificate was refused.

    Another try would not help. A client that has had a session goes on: the certificate may be renewed.
    """
    reason = _refusal(error)
    if reason and not core.session:
        core.stop(
            CertificateRefused(
                f"the certificate of the broker at {address.place} was refused: {reason}; nothing was sent. Say the "
                "host as the certificate has it, and where its issuer's certificate is, if the system does not trust "
                "that: tls:HOST:PORT:ca=FILE"
            )
        )


def _refusal(error: BaseException | None) -> str:
    """Return the reason why a certificate was refused, by Python's TLS or Twisted's; "" for any other error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    library = type(error).__module__.partition(".")[0]
    if library == "service_identity":
        return f"it is for another host ({type(error).__name__})"
    return "it is not trusted" if library == "OpenSSL" and "certificate verify failed" in str(error) else ""
