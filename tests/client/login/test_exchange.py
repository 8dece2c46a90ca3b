"""Test the client's side of each mechanism against brokers that are not what they say."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.login.dialogue import dialogue
from tests.login.login_room import LoginRoom, success
from txbroker.client.login.choice import choose
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.exchange import Anonymous, Bearer, External, Plain, Scram
from txbroker.errors import BrokerNotProven, Misuse, PeerViolation

PENCIL = Credentials(user="user", password="pencil")
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


def scram(password="pencil", user="user", bound=None):
    return Scram("SCRAM-SHA-256", Credentials(user=user, password=password), bound)


def challenged(iterations="4096", salt=SALT, nonce="x"):
    client = scram()
    own = client.first().partition(b"r=")[2].decode()
    return client, f"r={own}{nonce},s={salt},i={iterations}".encode()


def test_the_messages_are_those_of_rfc_7677(monkeypatch):
    monkeypatch.setattr("scramp.core.token_hex", lambda: "rOprNGfwEbeRWgbNEkqO")
    client = scram()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answer = client.answer(f"r={nonce},s={SALT},i=4096".encode())
    assert answer == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    client.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_client_that_could_bind_says_so():
    assert scram(bound=b"h" * 32).first().startswith(b"y,,")
    plus = Scram("SCRAM-SHA-256-PLUS", PENCIL, b"h" * 32)
    assert plus.first().startswith(b"p=tls-server-end-point,,")


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"v=AAAA", b"e=other-error", b"v=" + b64encode(bytes(32)), b"\xff"]
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(final):
    client, challenge = challenged()
    client.answer(challenge)
    with pytest.raises(BrokerNotProven, match="its signature is not that"):
        client.finish(final)


def test_a_broker_that_lets_anybody_in_is_not_believed():
    client = scram()
    for _ in range(2):
        with pytest.raises(BrokerNotProven, match="without having seen a proof"):
            client.finish(b"")
        client.first()


@pytest.mark.parametrize("iterations", ["4095", "1", "0", "1000001", "99999999999"])
def test_a_broker_that_asks_for_too_few_or_too_many_iterations_gets_no_proof(iterations):
    client, challenge = challenged(iterations)
    with pytest.raises(BrokerNotProven, match=f"it asks for {iterations} iterations"):
        client.answer(challenge)


@pytest.mark.parametrize("iterations", ["4096", "1000000"])
def test_a_client_does_from_4096_to_a_million_iterations(iterations, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "scramp.core.hi", lambda hf, password, salt, count: asked.append(int(count)) or bytes(32)
    )
    client, challenge = challenged(iterations)
    client.answer(challenge)
    assert asked == [int(iterations)]


@pytest.mark.parametrize(
    "challenge", [b"", b"\xff", b"r=x,s=AAAA,i=4096", b"e=other-error", b"r=" + b"x" * 5000, b"v=AAAA"]
)
def test_what_is_no_challenge_breaks_the_protocol(challenge):
    client = scram()
    client.first()
    with pytest.raises(PeerViolation):
        client.answer(challenge)


@pytest.mark.parametrize(
    "change", [{"nonce": ""}, {"salt": "AAAA"}, {"salt": "!"}, {"iterations": "04096"}, {"iterations": "x"}]
)
def test_a_challenge_with_a_wrong_part_breaks_the_protocol(change):
    client, challenge = challenged(**change)
    with pytest.raises(PeerViolation):
        client.answer(challenge)


def test_a_challenge_of_any_length_is_not_looked_at():
    client, challenge = challenged()
    with pytest.raises(PeerViolation):
        client.answer(challenge + b",x=" + b"y" * 5_000)


def test_a_challenge_comes_once_and_after_the_first_message():
    client, challenge = challenged()
    client.answer(challenge)
    with pytest.raises(PeerViolation, match="was not awaited"):
        client.answer(challenge)
    with pytest.raises(PeerViolation, match="was not awaited"):
        scram().answer(challenge)


@given(challenge=st.binary(max_size=60), final=st.binary(max_size=60))
def test_no_bytes_of_a_broker_make_another_error(challenge, final):
    client = scram()
    client.first()
    with pytest.raises((PeerViolation, BrokerNotProven)):
        client.answer(challenge)
    client, sound = challenged()
    client.answer(sound)
    with pytest.raises(BrokerNotProven):
        client.finish(final)


@pytest.mark.parametrize(
    ("client", "first"),
    [
        (Anonymous("ANONYMOUS", None), b""),
        (External("EXTERNAL", Credentials(use_certificate=True)), b""),
        (External("EXTERNAL", Credentials(user="alice", use_certificate=True)), b"alice"),
        (Plain("PLAIN", PENCIL), b"\0user\0pencil"),
        (Bearer("OAUTHBEARER", Credentials(token="a.b.c")), b"n,,\x01auth=Bearer a.b.c\x01\x01"),
        (
            Bearer("OAUTHBEARER", Credentials(user="al", token="a.b.c")),
            b"n,a=al,\x01auth=Bearer a.b.c\x01\x01",
        ),
    ],
)
def test_mechanisms_of_one_message_take_no_more_from_the_broker(client, first):
    assert client.first() == first
    client.finish(b"")
    with pytest.raises(PeerViolation):
        client.finish(b"v=AAAA")
    if client.mechanism == "OAUTHBEARER":
        assert client.answer(b'{"status":"invalid_token"}') == b"\x01"
    else:
        with pytest.raises(PeerViolation):
            client.answer(b"more")


@pytest.mark.parametrize("shown", ["a" * (16 * 1024 + 1), "", "a b", "a\x01", "á"])
def test_what_can_be_no_token_is_not_sent(shown):
    with pytest.raises(Misuse, match="Nothing was sent") as caught:
        Bearer("OAUTHBEARER", Credentials(token=lambda: shown)).first()
    assert len(str(caught.value)) < 300


def test_a_password_that_no_user_can_have_is_not_sent():
    for password, reason in (
        ("a\u0007b", "SASLprep"),
        ("", "empty"),
        ("\ud800", "UTF-8"),
        ("x" * 1025, "1025 bytes"),
    ):
        with pytest.raises(Misuse, match=reason) as caught:
            scram(lambda password=password: password).first()
        assert "a\u0007b" not in str(caught.value)


def test_a_renewed_password_is_used_for_the_next_login():
    passwords = iter(["pencil", "other"])
    credentials = Credentials(user="alice", password=lambda: next(passwords))
    assert success(dialogue(choose(["PLAIN"], credentials, secure=True), LoginRoom())).principal == "alice"
    assert choose(["PLAIN"], credentials, secure=True).first() == b"\0alice\0other"


def test_no_secret_is_shown():
    client, challenge = challenged()
    client.answer(challenge)
    for it in (client, Plain("PLAIN", PENCIL), PENCIL):
        assert "pencil" not in repr(it)
