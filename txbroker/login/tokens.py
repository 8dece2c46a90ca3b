"""Bearer tokens: signed JSON Web Tokens (RFC 7519) of issuers that the broker trusts.

Signatures are verified by PyJWT with cryptography. Which algorithm is right is a matter of the key, never of the token
(RFC 8725, section 3.1): no token is accepted without a signature or with a symmetric one.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from journal.records.access_entries import TokenSubject
from txbroker.login.token_keys import TokenKey, keys_of

MAX_TOKEN: Final = 16 * 1024
"""Most bytes of a token."""
LEEWAY: Final = 60.0
"""Seconds by which the clocks of issuer and broker may differ."""
LATEST: Final = 253_402_300_800.0
"""The first second of the year 10000: greater numbers are no times, and do not fit into the protocol as µs."""
TYPES: Final = (None, "jwt", "at+jwt")
"""The types of tokens (RFC 9068), in small letters: others, as of a logout, are no tokens to log in with."""


class TokenIssuer(msgspec.Struct, frozen=True):
    """An issuer of tokens: what the claim ``iss`` says, what ``aud`` must be or hold, and its public keys."""

    issuer: str
    audience: str
    keys: tuple[TokenKey, ...]


def issuer_of(issuer: str, audience: str, data: bytes, path: str) -> TokenIssuer:
    """Return an issuer with the keys in a file: a JWK set (RFC 7517) or a public key as PEM.

    ``data`` are the file's bytes, ``path`` is its name in errors. Raises ``InvalidSetting`` for anything else in it:
    a private key, a symmetric one, one of RSA with less than 2,048 bits, or no key.
    """
    return TokenIssuer(issuer, audience, keys_of(data, path))


class ProvenToken(msgspec.Struct, frozen=True):
    """Whom a token is about, and the second since 1970 UTC from which on it is not accepted any more."""

    subject: TokenSubject
    valid_until: float


class TokenRefused(Exception):
    """A token is not accepted; the message says why and holds no part of it but names."""


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: Any = None


class _Claims(msgspec.Struct):
    """Its times are finite: JSON has no others, and numbers out of range are no numbers to the parser."""

    iss: str
    sub: str
    aud: str | list[str]
    exp: float
    nbf: float = 0.0
    iat: float = 0.0


def prove(token: str, issuers: Mapping[str, TokenIssuer], now: float) -> ProvenToken:
    """Return what a token proves at ``now``, in seconds since 1970 UTC; raises :class:`TokenRefused`."""
    header, claims = _read(token)
    if header.crit is not None:
        raise TokenRefused("it has critical extensions, and none is known here")
    if header.typ is not None and header.typ.lower().removeprefix("application/") not in TYPES:
        raise TokenRefused("its type is no token to log in with")
    issuer = issuers.get(claims.iss)
    if issuer is None:
        raise TokenRefused("its issuer is not trusted")
    if not any(_is_signed(token, header.alg, key) for key in _candidates(issuer, header)):
        raise TokenRefused(f"no key of {issuer.issuer!r} verifies its signature")
    if issuer.audience not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
        raise TokenRefused(f"it is for another audience than {issuer.audience!r}")
    _judge_times(claims, now)
    return ProvenToken(TokenSubject(claims.iss, claims.sub), claims.exp + LEEWAY)


def _read(token: str) -> tuple[_Header, _Claims]:
    if len(token) > MAX_TOKEN:
        raise TokenRefused(f"it has {len(token)} bytes, {MAX_TOKEN} are the most")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it is no signed JSON Web Token")
    try:
        header = msgspec.json.decode(_bytes(parts[0]), type=_Header)
        return header, msgspec.json.decode(_bytes(parts[1]), type=_Claims)
    except (ValueError, RecursionError) as error:
        # Only errors of types name claims; of others the text could be the token's.
        told = str(error) if isinstance(error, msgspec.ValidationError) else "it is no JSON"
        raise TokenRefused(f"its header or claims are not what they must be: {told}") from None


def _bytes(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _candidates(issuer: TokenIssuer, header: _Header) -> Iterator[TokenKey]:
    """Yield the keys that may have signed: those of that id, or without one, whose kind has that algorithm."""
    for key in issuer.keys:
        if header.alg in key.algorithms and (None in (key.kid, header.kid) or key.kid == header.kid):
            yield key


def _is_signed(token: str, algorithm: str, key: TokenKey) -> bool:
    from jwt import PyJWS  # here: 0.2 s, and no token may ever come
    from jwt.exceptions import PyJWTError

    try:
        PyJWS().decode(token, key.key, algorithms=[algorithm])
    except (PyJWTError, ValueError, TypeError, RecursionError):
        return False
    return True


def _judge_times(claims: _Claims, now: float) -> None:
    for name in ("exp", "nbf", "iat"):
        if not abs(getattr(claims, name)) < LATEST:
            raise TokenRefused(f"its {name} is no time: seconds since 1970 below {LATEST:.0f} are")
    if claims.exp + LEEWAY <= now:
        raise TokenRefused(f"it expired {now - claims.exp:.0f} s ago")
    if max(claims.nbf, claims.iat) - LEEWAY > now:
        raise TokenRefused(f"it is not valid yet: in {max(claims.nbf, claims.iat) - now:.0f} s")
