"""The hash of a broker's certificate, to which a login may be bound (``tls-server-end-point`` of RFC 5929)."""

from __future__ import annotations

import hashlib
from typing import Final

WEAK: Final = ("md5", "sha1")
"""Hashes of signatures in whose place SHA-256 is taken (RFC 5929, section 4.1)."""


def end_point_hash(certificate: bytes) -> bytes | None:
    """Return the hash of a certificate (DER) by that of its signature; None for a signature that has none, as Ed25519.

    None, too, without the package asn1crypto, which comes with scramp: then there is no login with a password either.
    """
    try:
        from asn1crypto.x509 import Certificate
    except ImportError:
        return None
    try:
        name = Certificate.load(certificate)["signature_algorithm"].hash_algo
    except ValueError:  # what asn1crypto raises for a signature without a hash
        return None
    return hashlib.new("sha256" if name in WEAK else name, certificate).digest()
