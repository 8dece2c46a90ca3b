"""Public keys of issuers of tokens, from a JWK set or PEM, each with the algorithms that its kind is for."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from txbroker.errors import InvalidSetting

MAX_KEYS: Final = 32
LEAST_RSA_BITS: Final = 2_048
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class TokenKey(msgspec.Struct, frozen=True):
    """A public key, the id by which tokens name it (None if it has none), and the algorithms that it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any


class _Jwk(msgspec.Struct):
    kty: str
    kid: str | None = None
    use: str | None = None
    key_ops: list[str] | None = None
    alg: str | None = None
    d: Any = None


class _JwkSet(msgspec.Struct):
    keys: list[msgspec.Raw]


def keys_of(data: bytes, path: str) -> tuple[TokenKey, ...]:
    """Return the keys in a file. ``path`` is its name in errors. Raises ``InvalidSetting``."""
    keys = _from_pem(data, path) if data.lstrip().startswith(b"-----BEGIN ") else _from_jwk_set(data, path)
    if not 0 < len(keys) <= MAX_KEYS:
        raise _wrong(path, f"it has {len(keys)} keys to verify signatures with, 1 to {MAX_KEYS} are needed")
    return keys


def _from_pem(data: bytes, path: str) -> tuple[TokenKey, ...]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY-----" in data:
        raise _wrong(path, "it holds a private key, which belongs to the issuer alone: give the public key")
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise _wrong(path, "it is no public key in PEM ('-----BEGIN PUBLIC KEY-----')") from None
    return (TokenKey(None, _algorithms(key, None, path), key),)


def _from_jwk_set(data: bytes, path: str) -> tuple[TokenKey, ...]:
    try:
        parts = msgspec.json.decode(data, type=_JwkSet).keys
        described = [(msgspec.json.decode(part, type=_Jwk), bytes(part)) for part in parts]
    except (ValueError, RecursionError):
        raise _wrong(path, 'it is neither a JWK set ({"keys": [...]}) nor PEM') from None
    return tuple(_from_jwk(jwk, part, path) for jwk, part in described if _verifies(jwk))


def _verifies(jwk: _Jwk) -> bool:
    return jwk.use in (None, "sig") and (jwk.key_ops is None or "verify" in jwk.key_ops)


def _from_jwk(jwk: _Jwk, part: bytes, path: str) -> TokenKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
    from jwt.exceptions import PyJWTError

    kinds: dict[str, Any] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}
    if jwk.kty not in kinds:
        raise _wrong(path, f"it has a key of kind {jwk.kty[:20]!r}; {', '.join(kinds)} are accepted")
    if jwk.d is not None:
        raise _wrong(path, "it holds a private key, which belongs to the issuer alone: give the public keys")
    try:
        key = kinds[jwk.kty].from_jwk(part.decode())
    except (PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        raise _wrong(
            path, f"the key with id {jwk.kid!r} is damaged, or of a curve that is not known"
        ) from None
    return TokenKey(jwk.kid, _algorithms(key, jwk.alg, path), key)


def _algorithms(key: Any, stated: str | None, path: str) -> frozenset[str]:
    """Return what a key may verify: what its kind is for, and no more than it says itself."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    possible: frozenset[str] = frozenset()
    if isinstance(key, RSAPublicKey):
        if key.key_size < LEAST_RSA_BITS:
            raise _wrong(
                path, f"it has a key of RSA with {key.key_size} bits, {LEAST_RSA_BITS:,} are the least"
            )
        possible = _RSA
    elif isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVES:
        possible = frozenset({_CURVES[key.curve.name]})
    elif isinstance(key, Ed25519PublicKey | Ed448PublicKey):
        possible = frozenset({"EdDSA"})
    allowed = possible if stated is None else possible & {stated}
    if not allowed:
        raise _wrong(path, "it has a key of a kind or curve, or for an algorithm, that signs no tokens here")
    return allowed


def _wrong(path: str, why: str) -> InvalidSetting:
    return InvalidSetting(
        f"the keys of an issuer of tokens in {path} cannot be used: {why}. Nothing was changed"
    )
