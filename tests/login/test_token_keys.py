"""Test the files with keys of issuers: what they hold, and what is refused in them."""

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from tests.login.token_issuers import jwk, jwks, pem, private
from txbroker.errors import InvalidSetting
from txbroker.login.token_keys import MAX_KEYS, keys_of

RSA = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}


@pytest.mark.parametrize(
    ("kind", "algorithms"),
    [
        ("RSA", RSA),
        ("SECP256R1", {"ES256"}),
        ("SECP384R1", {"ES384"}),
        ("SECP521R1", {"ES512"}),
        ("Ed25519", {"EdDSA"}),
    ],
)
def test_the_kind_of_a_key_says_for_which_algorithms_it_is(kind, algorithms):
    (by_pem,) = keys_of(b"\n" + pem(kind), "keys.pem")
    (by_jwk,) = keys_of(jwks(jwk(kind, kid="a", use="sig", key_ops=["verify"])), "keys.json")
    assert (by_pem.kid, by_jwk.kid) == (None, "a")
    assert by_pem.algorithms == by_jwk.algorithms == algorithms


def test_keys_for_other_uses_are_passed_over():
    found = keys_of(
        jwks(jwk("RSA", kid="a"), jwk("RSA", use="enc"), jwk("RSA", key_ops=["encrypt"])), "keys.json"
    )
    assert [key.kid for key in found] == ["a"]


def private_pem():
    return private("RSA").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: private_pem(), "private key, which belongs to the issuer"),
        (lambda: pem("RSA") + private_pem(), "private key, which belongs to the issuer"),
        (lambda: jwks(jwk("RSA", public=False)), "private key, which belongs to the issuer"),
        (lambda: jwks({"kty": "oct", "k": "c2VjcmV0"}), "a key of kind 'oct'"),
        (lambda: jwks(jwk("RSA"), {"kty": "oct", "k": "c2VjcmV0"}), "a key of kind 'oct'"),
        (lambda: pem("small RSA"), "1024 bits, 2,048 are the least"),
        (lambda: jwks(jwk("small RSA")), "1024 bits, 2,048 are the least"),
        (lambda: pem("SECP224R1"), "a kind or curve"),
        (lambda: jwks(jwk("RSA", alg="HS256")), "for an algorithm"),
        (lambda: jwks(jwk("RSA", alg="none")), "for an algorithm"),
        (lambda: jwks(), "it has 0 keys"),
        (lambda: jwks(*[jwk("RSA")] * (MAX_KEYS + 1)), "it has 33 keys"),
        (lambda: jwks({"kty": "RSA", "n": "AA"}), "is damaged"),
        (lambda: jwks({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}), "is damaged"),
        (lambda: b"", "neither a JWK set"),
        (lambda: b"[" * 100_000, "neither a JWK set"),
        (lambda: b'{"keys": [], "x": ' + b"[" * 100_000, "neither a JWK set"),
        (lambda: b'{"keys": {}}', "neither a JWK set"),
        (lambda: b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "no public key in PEM"),
    ],
)
def test_what_is_no_public_key_to_verify_with_is_refused(data, reason):
    with pytest.raises(InvalidSetting, match=reason) as caught:
        keys_of(data(), "the/keys")
    assert "the/keys" in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


@given(
    st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"-----BEGIN PUBLIC KEY-----\n" + data)
)
def test_no_bytes_make_another_error(data):
    with pytest.raises(InvalidSetting):
        keys_of(data, "keys")
