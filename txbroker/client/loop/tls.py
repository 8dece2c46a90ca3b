"""TLS of a client: the certificates that it trusts, the one that it shows, and its errors for refused ones."""

from __future__ import annotations

import re
import ssl

from txbroker.client.core.core import Core
from txbroker.client.core.url import Address
from txbroker.errors import CertificateRefused, Misuse

_ALERT = re.compile(r"alert (.*certificate.*|.*unknown ca|.*access denied|.*handshake failure)")
"""What a broker says that has refused a certificate, or the lack of one, in the words of OpenSSL."""


def check(address: Address) -> None:
    """Raise :class:`Misuse` if the address names a file of certificates that cannot be read, or a key of another."""
    if address.kind != "tls":
        return
    try:
        made = _trusting(address)
    except OSError as error:
        raise Misuse(
            f"the certificates in {address.ca} cannot be read ({error.strerror or error}); nothing was opened. "
            "The file must hold those to trust, in PEM"
        ) from error
    try:
        _identify(made, address)
    except OSError as error:
        files = f"{address.cert} and its key in {address.key}" if address.key else address.cert
        raise Misuse(
            f"the certificate in {files} cannot be used ({_text(error)}); nothing was opened. The file must hold it in "
            "PEM, before those that signed it, and the key that belongs to it must not be encrypted"
        ) from error


def context(address: Address) -> ssl.SSLContext | None:
    """Return the context that checks the broker's certificate; None for an address without TLS. Raises ``OSError``.

    It is made for each connection, so that a file of certificates may be renewed.
    """
    if address.kind != "tls":
        return None
    made = _trusting(address)
    _identify(made, address)
    return made


def _trusting(address: Address) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=address.ca or None)


def _identify(made: ssl.SSLContext, address: Address) -> None:
    if address.cert:
        made.load_cert_chain(address.cert, address.key or None, password=_no_password)


def _no_password() -> str:
    """Refuse to open a key: by itself OpenSSL would ask on the terminal."""
    raise OSError("the key is encrypted")


def _text(error: OSError) -> str:
    """Return what is wrong, in the words of the system or of OpenSSL."""
    if isinstance(error, ssl.SSLError):
        return (getattr(error, "reason", None) or "it is not PEM").replace("_", " ").lower()
    return error.strerror or str(error)


def end_if_untrusted(core: Core, address: Address, error: BaseException | None) -> None:
    """End a client that can never connect, because its certificate or the broker's was refused.

    Another try would not help. A client that has had a session goes on: the certificate may be renewed. With TLS 1.3 a
    broker refuses a client's certificate after the handshake, so that the client learns of it when it first reads.
    """
    if core.session or address.kind != "tls":
        return
    if reason := _refusal(error):
        core.stop(
            CertificateRefused(
                f"the certificate of the broker at {address.place} was refused: {reason}; nothing was sent. Say the "
                "host as the certificate has it, and where its issuer's certificate is, if the system does not trust "
                "that: tls:HOST:PORT:ca=FILE"
            )
        )
    elif reason := alert(error):
        what = f"the certificate in {address.cert}" if address.cert else "a client without a certificate"
        core.stop(
            CertificateRefused(
                f"the broker at {address.place} has refused {what}: {reason}; nothing was done. Show one that is valid "
                "now and that one of the broker's issuers has signed: tls:HOST:PORT:cert=FILE:key=FILE"
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


def alert(error: BaseException | None) -> str:
    """Return the broker's reason for refusing this client, from Python's TLS or Twisted's; "" for any other error."""
    if not isinstance(error, ssl.SSLError) and type(error).__module__.partition(".")[0] != "OpenSSL":
        return ""
    words = getattr(error, "reason", None) or str(error)
    found = _ALERT.search(words.replace("_", " ").lower())
    return found[1].partition("'")[0] if found else ""
