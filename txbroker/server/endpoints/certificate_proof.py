"""The proof of certificates: files become a context of TLS only if what is in them fits together and is valid now.

This needs the packages that the extra ``tls`` brings, which a broker without TLS does without.
"""

from __future__ import annotations

import os
import re
import stat
from itertools import pairwise
from typing import Any, Final, NamedTuple

import OpenSSL
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from OpenSSL import SSL, crypto
from twisted.internet.ssl import AcceptableCiphers, CertificateOptions, TLSVersion

from txbroker.server.endpoints.certificate_files import (
    CertificateFiles,
    CertificatesRefused,
    ClientCertificates,
    date_text,
)

if not hasattr(x509.Certificate, "not_valid_after_utc"):  # up to 41 dates had no time zone
    raise ImportError("cryptography 42 or newer is needed")
if int(OpenSSL.__version__.partition(".")[0]) < 25:  # up to 24.2 it took none of the objects of cryptography
    raise ImportError("pyOpenSSL 25 or newer is needed")

MOST: Final = 1 << 20
"""Bytes of a file. What is larger is something else: all issuers that a browser trusts are 230 KB."""

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Those of TLS 1.2: authenticated, and a key that is stolen later opens nothing. Twisted's own have CBC and RSA."""

_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


class Proven(NamedTuple):
    """What new connections are made with, and until when it is valid, in seconds since 1970 UTC."""

    context: SSL.Context
    not_after: float


def prove(files: CertificateFiles, now: float) -> Proven:
    """Load the files and return what connections are made with. Raises :class:`CertificatesRefused` with the reason."""
    chain = _certificates(files.certificate)
    key = _key(files.key)
    if _public_bytes(key.public_key()) != _public_bytes(chain[0].public_key()):
        raise CertificatesRefused(
            f"the key in {files.key} is not that of the first certificate in {files.certificate}"
        )
    _prove_order(files.certificate, chain)
    for certificate in chain:
        _prove_dates(files.certificate, certificate, now)
    issuers = [] if files.clients is ClientCertificates.NONE else _certificates(files.ca)
    try:
        context = _context(chain, key, issuers, files.clients is ClientCertificates.REQUIRED)
        if issuers:
            context.load_client_ca(
                os.fsencode(files.ca)
            )  # tells clients which of several certificates to show
    except (SSL.Error, crypto.Error, ValueError, TypeError) as error:
        raise CertificatesRefused(f"OpenSSL takes no such certificate or key ({error})") from error
    return Proven(context, min(each.not_valid_after_utc.timestamp() for each in chain))


def _content(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CertificatesRefused(f"{path} is not a file")
        with open(path, "rb") as file:
            content = file.read(MOST + 1)
    except OSError as error:
        raise CertificatesRefused(f"{path} cannot be read: {error.strerror}") from error
    if not content.strip():
        raise CertificatesRefused(f"{path} is empty")
    if len(content) > MOST:
        raise CertificatesRefused(
            f"{path} is larger than {MOST} bytes, so it has something else than certificates"
        )
    return content


def _certificates(path: str) -> list[x509.Certificate]:
    content = _content(path)
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise CertificatesRefused(f"{path} has no certificate in PEM")
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise CertificatesRefused(f"{path} has a certificate that is damaged ({error})") from error


def _key(path: str) -> Any:
    found = _KEY.search(_content(path))
    if found is None:
        raise CertificatesRefused(f"{path} has no private key in PEM")
    try:
        return load_pem_private_key(found[0], None)
    except TypeError as error:
        raise CertificatesRefused(
            f"the key in {path} is encrypted, and nobody is there to type its password"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificatesRefused(
            f"{path} has a key that is damaged or of an unknown kind ({error})"
        ) from error


def _public_bytes(key: Any) -> bytes:
    found: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found


def _prove_order(path: str, chain: list[x509.Certificate]) -> None:
    for number, (certificate, issuer) in enumerate(pairwise(chain), start=1):
        try:
            certificate.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
            raise CertificatesRefused(
                f"certificate {number + 1} in {path} has not signed certificate {number}: each must be followed by "
                "that of its issuer, the broker's own first"
            ) from error


def _prove_dates(path: str, certificate: x509.Certificate, now: float) -> None:
    begins, ends = (
        each.timestamp() for each in (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    )
    whose = f"the certificate of {certificate.subject.rfc4514_string() or 'nobody'} in {path}"
    if now > ends:
        raise CertificatesRefused(f"{whose} expired at {date_text(ends)}")
    if now < begins:
        raise CertificatesRefused(f"{whose} is not valid before {date_text(begins)}", begins)


def _context(
    chain: list[x509.Certificate], key: Any, issuers: list[x509.Certificate], required: bool
) -> SSL.Context:
    own: list[Any] = list(chain)  # Twisted hands them to pyOpenSSL, which takes those of cryptography, too
    trusted = list(map(crypto.X509.from_cryptography, issuers))
    options = CertificateOptions(
        privateKey=key,
        certificate=own[0],
        extraCertChain=own[1:],
        verify=bool(trusted),
        caCerts=trusted or None,
        requireCertificate=required,
        raiseMinimumTo=TLSVersion.TLSv1_2,
        acceptableCiphers=AcceptableCiphers.fromOpenSSLCipherString(CIPHERS),
    )
    context: SSL.Context = options.getContext()
    # None is chosen of the protocols that a client may offer. Twisted's own choice fails: it looks for a connection's
    # protocol where nobody has put it.
    context.set_alpn_select_callback(lambda connection, offered: SSL.NO_OVERLAPPING_PROTOCOLS)  # noqa: ARG005
    store = context.get_cert_store()
    if trusted and store is not None:
        # Those in the file are trusted themselves, also one that is not signed by itself.
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    return context
