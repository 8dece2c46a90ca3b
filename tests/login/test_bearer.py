"""Test logins by OAUTHBEARER."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.records.access_entries import TokenSubject, User
from tests.login.login_room import LOOPBACK, OPEN, TLS, LoginRoom, failure, success
from tests.login.token_issuers import AUDIENCE, ISSUER, NOW, pem, token
from txbroker.login.bearer import OAUTHBEARER, REFUSAL
from txbroker.login.outcomes import Challenge
from txbroker.login.tokens import MAX_TOKEN, issuer_of


def room():
    made = LoginRoom()
    made.logins.trust([issuer_of(ISSUER, AUDIENCE, pem("RSA"), "keys")])
    made.clock.set_wall(NOW * 1_000_000)
    return made


def message(shown=None, header="n,,", before="", after=""):
    return f"{header}\x01{before}auth=Bearer {token() if shown is None else shown}\x01{after}\x01".encode()


def refused(made, data, facts=TLS):
    exchange = made.begin(OAUTHBEARER, facts)
    assert exchange.step(data) == Challenge(REFUSAL)
    outcome = exchange.step(b"\x01")
    assert "after the end" in failure(exchange.step(b"\x01"))
    return failure(outcome)


@pytest.mark.parametrize(
    "data",
    [
        message(), message(header="y,,"), message(header="n,a=alice,"),
        message(before="host=a.example\x01port=143\x01"), message(after="host=a.example\x01"),
        message().replace(b"Bearer", b"bEARER  "),
    ],
)  # fmt: skip
@pytest.mark.parametrize("facts", [TLS, LOOPBACK])
def test_a_token_lets_its_user_in_until_it_expires(data, facts):
    found = success(room().step(OAUTHBEARER, data, facts))
    assert (found.principal, found.valid_until, found.data) == ("alice", NOW + 660, b"")


def test_a_token_is_not_taken_where_others_can_listen():
    assert "is not offered" in failure(room().step(OAUTHBEARER, message(), OPEN))
    assert "is not offered" in failure(LoginRoom().step(OAUTHBEARER, message()))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (message(header="n,a=bob,"), "is user 'alice', the identity is another"),
        (message(token(sub="carol")), "no user names subject 'carol' of 'https://issuer'"),
        (message(token(sub="alice")), "no user names subject 'alice'"),
        (message(token(exp=NOW - 61)), "the token is refused: it expired"),
        (message(header="p=tls-server-end-point,,"), "no OAUTHBEARER"),
        (message(header="n,"), "no OAUTHBEARER"),
        (message(before="auth=Bearer x\x01"), "no OAUTHBEARER"),
        (message(after="auth=Bearer x\x01"), "no OAUTHBEARER"),
        (message(""), "no OAUTHBEARER"),
        (message().replace(b"Bearer", b"Basic"), "no OAUTHBEARER"),
        (message()[:-1], "no OAUTHBEARER"),
        (message() + b"\x01", "no OAUTHBEARER"),
        (message("a" * (MAX_TOKEN + 1)), "the token is refused: it has 16385 bytes"),
        (b"\x01", "no OAUTHBEARER"),
    ],
)
def test_what_is_no_token_of_a_user_is_refused_in_the_words_of_rfc_7628(data, reason):
    assert reason in refused(room(), data)


def test_a_message_that_is_too_long_is_not_looked_at():
    assert "a message of 20000 bytes" in failure(room().step(OAUTHBEARER, b"n" * 20_000))


def test_a_token_that_two_users_name_lets_neither_in():
    made = room()
    made.set(User("carol", tokens=[TokenSubject(ISSUER, "alice-7")]))
    assert "users alice, carol name subject" in refused(made, message())


def test_a_user_that_is_removed_is_not_found_any_more_and_a_new_one_is():
    made = room()
    success(made.step(OAUTHBEARER, message()))
    made.remove("alice")
    assert "no user names" in refused(made, message())
    made.set(User("carol", tokens=[TokenSubject(ISSUER, "alice-7")]))
    assert success(made.step(OAUTHBEARER, message())).principal == "carol"


def test_an_issuer_that_is_not_trusted_any_more_is_refused():
    made = room()
    made.logins.trust([issuer_of("https://other", AUDIENCE, pem("RSA"), "keys")])
    assert "issuer is not trusted" in refused(made, message())


def test_the_token_is_nowhere_to_be_seen():
    made = room()
    exchange = made.begin(OAUTHBEARER)
    shown = token(sub="carol")
    exchange.step(message(shown))
    outcome = exchange.step(b"\x01")
    assert shown.split(".")[2] not in repr((exchange, outcome, made.logins, vars(exchange)))


@given(
    st.lists(st.sampled_from([b"n,,", b"\x01", b"auth=", b"Bearer ", b"a.b.c", b"host=", b"=", b"\xff"])).map(
        b"".join
    )
)
def test_no_bytes_make_anything_but_a_refusal(data):
    if data:
        refused(room(), data)
