"""Issuers of tokens with real keys of each kind, and tokens of them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer"
AUDIENCE = "txbroker"
NOW = 1_700_000_000


@cache
def private(kind: str) -> Any:
    match kind:
        case "RSA":
            return rsa.generate_private_key(65537, 2048)
        case "small RSA":
            return rsa.generate_private_key(65537, 1024)
        case "Ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "Ed448":
            return ed448.Ed448PrivateKey.generate()
        case _:
            return ec.generate_private_key(getattr(ec, kind)())


def pem(kind: str) -> bytes:
    return private(kind).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwk(kind: str, *, public: bool = True, **more: Any) -> dict[str, Any]:
    algorithm = {"RSA": RSAAlgorithm, "small RSA": RSAAlgorithm}.get(kind, ECAlgorithm)
    if kind.startswith("Ed"):
        algorithm = OKPAlgorithm
    key = private(kind).public_key() if public else private(kind)
    made = algorithm.to_jwk(key, as_dict=True)
    made.pop("key_ops", None)
    return made | more


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(**more: Any) -> dict[str, Any]:
    made = {"iss": ISSUER, "sub": "alice-7", "aud": AUDIENCE, "exp": NOW + 600} | more
    return {name: value for name, value in made.items() if value is not None}


def token(
    kind: str = "RSA", algorithm: str = "RS256", kid: str | None = None, headers: Any = None, **more: Any
) -> str:
    headers = ({} if kid is None else {"kid": kid}) | (headers or {})
    return jwt.encode(claims(**more), private(kind), algorithm, headers)


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()
