"""Bearer tokens: signed JSON Web Tokens (RFC 7519) of issuers that the broker trusts."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_TOKEN = 16 * 1024
LEEWAY = 60.0


class TokenIssuer(msgspec.Struct, frozen=True):
    """An issuer of tokens: what its claim ``iss`` says, what ``aud`` must be or hold, and its public keys."""

    issuer: str
    audience: str
    keys: tuple[Any, ...]


def issuer_of(issuer: str, audience: str, data: bytes, path: str) -> TokenIssuer:
    """Return an issuer with the keys in a file: a JWK set (RFC 7517) or public keys as PEM.

    ``data`` are the file's bytes, ``path`` is its name in errors. Raises ``InvalidSetting`` for anything else in it:
    a private key, a symmetric one, one of less than 2,048 bits, or none.
    """
    raise NotImplementedError
