"""Test what is proven by tokens, and by those that an attacker makes."""

import hmac
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.records.access_entries import TokenSubject
from tests.login.token_issuers import AUDIENCE, ISSUER, NOW, claims, jwk, jwks, part, pem, token
from txbroker.login.tokens import LATEST, MAX_TOKEN, ProvenToken, TokenRefused, issuer_of, prove

KINDS = [
    ("RSA", "RS256"), ("RSA", "RS512"), ("RSA", "PS256"), ("SECP256R1", "ES256"), ("SECP384R1", "ES384"),
    ("SECP521R1", "ES512"), ("Ed25519", "EdDSA"), ("Ed448", "EdDSA"),
]  # fmt: skip
ALICE = TokenSubject(ISSUER, "alice-7")


def issuers(data=None):
    issuer = issuer_of(ISSUER, AUDIENCE, pem("RSA") if data is None else data, "keys")
    return {ISSUER: issuer}


def refusal(shown, data=None, now=NOW):
    with pytest.raises(TokenRefused) as caught:
        prove(shown, issuers(data), now)
    assert len(shown) < 12 or not any(len(it) > 9 and it in str(caught.value) for it in shown.split("."))
    return str(caught.value)


@pytest.mark.parametrize(("kind", "algorithm"), KINDS)
@pytest.mark.parametrize("form", [pem, lambda kind: jwks(jwk("RSA", kid="old"), jwk(kind, kid="new"))])
def test_a_token_proves_its_subject_until_a_minute_after_it_expires(kind, algorithm, form):
    for kid in (None, "new"):
        proven = prove(token(kind, algorithm, kid), issuers(form(kind)), NOW)
        assert proven == ProvenToken(ALICE, NOW + 660)


@pytest.mark.parametrize("typ", ["JWT", "at+jwt", "application/at+JWT"])
def test_a_token_may_be_for_several_audiences_and_of_the_types_of_rfc_9068(typ):
    shown = token(aud=["other", AUDIENCE], headers={"typ": typ}, sub="x", nbf=NOW + 59, iat=NOW + 59)
    assert prove(shown, issuers(), NOW).subject == TokenSubject(ISSUER, "x")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"exp": NOW - 60}, "expired 60 s ago"),
        ({"exp": None}, "missing required field `exp`"),
        ({"exp": "9999999999"}, "Expected `float`"),
        ({"exp": True}, "Expected `float`"),
        ({"exp": float("inf")}, "no JSON"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"iat": NOW + 61}, "not valid yet"),
        ({"aud": None}, "missing required field `aud`"),
        ({"aud": "other"}, "for another audience"),
        ({"aud": ["a", "b"]}, "for another audience"),
        ({"aud": []}, "for another audience"),
        ({"aud": AUDIENCE + "x"}, "for another audience"),
        ({"iss": None}, "missing required field `iss`"),
        ({"iss": "https://evil"}, "issuer is not trusted"),
        ({"iss": [ISSUER]}, "not what they must be"),
        ({"sub": None}, "missing required field `sub`"),
        ({"headers": {"typ": "logout+jwt"}}, "its type is no token"),
        ({"headers": {"crit": ["x"]}}, "critical extensions"),
    ],
)
def test_a_token_that_lacks_what_it_needs_is_refused(more, reason):
    iss = more.get("iss", "")
    try:
        shown = token(**more)
    except TypeError:  # PyJWT makes none with such an issuer
        shown = token(kind="RSA")
        shown = f"{shown.split('.')[0]}.{part(claims(iss=iss))}.{shown.split('.')[2]}"
    assert reason in refusal(shown)


def test_times_are_judged_with_a_minute_of_leeway():
    prove(token(exp=NOW - 59), issuers(), NOW)
    prove(token(exp=NOW - 59.5), issuers(), NOW)
    refusal(token(exp=1), now=NOW)
    endless = part(b'{"iss":"https://issuer","sub":"a","aud":"txbroker","exp":1e999}')
    refusal(f"{token().split('.')[0]}.{endless}.AA")


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("number", [1e300, 1e19, LATEST, 10**30, -1e300, float("inf"), float("nan")])
def test_a_number_that_is_no_time_is_refused(claim, number):
    said = refusal(token(**{claim: number}))
    assert f"its {claim} is no time" in said or "no JSON" in said or "not what they must be" in said
    assert len(said) < 200


def test_a_token_may_be_valid_until_the_year_10000():
    proven = prove(token(exp=LATEST - 1), issuers(), NOW)
    assert int(proven.valid_until * 1_000_000) < 1 << 63, "so the protocol can tell it"


@pytest.mark.parametrize("error", [ValueError, TypeError, RecursionError])
def test_what_the_library_does_not_understand_is_refused(error, monkeypatch):
    """Nothing is known that makes it raise these, other than bugs it had."""

    def fails(*_, **__):
        raise error("the library's own")

    monkeypatch.setattr(jwt.PyJWS, "decode", fails)
    assert "no key of" in refusal(token())


@pytest.mark.parametrize("kid", ["other", "", "../../dev/null"])
def test_a_key_that_is_not_named_verifies_nothing(kid):
    assert "no key of" in refusal(token(kid=kid), jwks(jwk("RSA", kid="new")))
    prove(token(kid=kid), issuers(jwks(jwk("RSA"))), NOW)


def test_a_key_verifies_no_other_algorithm_than_it_states():
    stated = jwks(jwk("RSA", alg="PS256"))
    assert "no key of" in refusal(token(algorithm="RS256"), stated)
    prove(token(algorithm="PS256"), issuers(stated), NOW)


def signed_by_hand(algorithm, key, digest="sha256"):
    head = f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(claims())}"
    return f"{head}.{part(hmac.digest(key, head.encode(), digest))}"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("form", [pem, lambda kind: jwks(jwk(kind))])
def test_a_token_signed_with_the_public_key_as_if_it_were_a_secret_is_refused(algorithm, form):
    data = form("RSA")
    for key in (data, data.strip(), json.dumps(jwk("RSA")).encode(), b""):
        shown = signed_by_hand(algorithm, key, algorithm.replace("HS", "sha"))
        assert "no key of" in refusal(shown, data)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "RS256", "ES256K", "XX"])
def test_a_token_without_a_signature_is_refused(algorithm):
    assert "no key of" in refusal(f"{part({'alg': algorithm})}.{part(claims())}.")
    assert "no key of" in refusal(f"{part({'alg': algorithm, 'kid': 'x'})}.{part(claims())}.AAAA")


def test_a_token_that_brings_its_own_key_is_verified_with_the_issuers():
    shown = token(
        "SECP256R1", "ES256", headers={"jwk": jwk("SECP256R1"), "jku": "https://evil", "x5c": ["AAAA"]}
    )
    assert "no key of" in refusal(shown)


def test_a_token_whose_claims_were_changed_is_refused():
    head, _, signature = token().split(".")
    assert "no key of" in refusal(f"{head}.{part(claims(sub='bob-1'))}.{signature}")
    other = token(sub="bob-1").split(".")
    assert "no key of" in refusal(f"{head}.{other[1]}.{signature}")


def test_a_detached_content_is_not_taken_from_the_token():
    detached = token(headers={"b64": False, "crit": ["b64"]}).split(".")
    assert detached[1] == ""
    assert "critical extensions" in refusal(f"{detached[0]}.{part(claims())}.{detached[2]}")


def test_a_token_of_more_than_16_kib_is_not_looked_at():
    assert "are the most" in refusal(token(pad="x" * 12_300))
    longest = token(pad="x" * 11_000)
    assert len(longest) < MAX_TOKEN
    prove(longest, issuers(), NOW)


@pytest.mark.parametrize(
    "shown", ["", ".", "..", "...", "a.b.c", "[.[.[", "é.é.é", "\0.\0.\0", "a" * 100, "eyJ9.eyJ9.", "a.b.c.d"]
)
def test_what_is_no_token_is_refused(shown):
    assert refusal(shown)


@pytest.mark.parametrize("deep", [b"[" * 8_000, b'{"a":' * 2_000, b'{"alg":"RS256","x":' + b"[" * 7_000])
def test_what_is_nested_deep_is_refused(deep):
    assert refusal(f"{part(deep)}.{part(claims())}.AAAA")
    assert refusal(f"{part({'alg': 'RS256'})}.{part(deep)}.AAAA")


def test_what_one_parser_takes_and_the_other_does_not_is_refused():
    found = issuers()
    for depth in range(700, 1_000):
        nested = b'{"alg":"RS256","x":' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(TokenRefused):
            prove(f"{part(nested)}.{part(claims())}.AAAA", found, NOW)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([ISSUER, AUDIENCE, "RS256", NOW]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["alg", "kid", "iss", "x"]), inner)
    ),
    max_leaves=5,
)


@given(
    header=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("alg", "kid", "typ", "crit", "b64", "jwk"), JSON)
    ),
    found=st.fixed_dictionaries({}, optional=dict.fromkeys(("iss", "sub", "aud", "exp", "nbf", "iat"), JSON)),
    signature=st.binary(max_size=300),
)
def test_no_header_and_claims_are_more_than_refused(header, found, signature):
    refusal(f"{part({'alg': 'RS256'} | header)}.{part(claims() | found)}.{part(signature)}")


@given(st.text(st.characters(max_codepoint=255), max_size=300))
def test_no_text_is_more_than_refused(shown):
    refusal(shown)
