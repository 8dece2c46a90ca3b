"""Test what connections are offered, and what all attempts have in common."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.records.access_entries import User
from tests.login.login_room import ALICE, LOOPBACK, OPEN, SECOND, TLS, LoginRoom, failure, success
from tests.login.scram_by_hand import ByHand
from tests.login.test_external import UNIX, showing
from tests.login.test_scram import login
from tests.login.token_issuers import AUDIENCE, ISSUER, pem
from txbroker.errors import AuthenticationFailed, InvalidSetting
from txbroker.login.logins import UNCONFIRMED
from txbroker.login.outcomes import Challenge, Failure, Pending, Success
from txbroker.login.tokens import issuer_of

BEARER = issuer_of(ISSUER, AUDIENCE, pem("RSA"), "keys")
SCRAM = "SCRAM-SHA-256"
EVERY = ["EXTERNAL", "OAUTHBEARER", "SCRAM-SHA-256-PLUS", SCRAM, "PLAIN", "ANONYMOUS"]


@pytest.mark.parametrize(
    ("facts", "offered"),
    [
        (OPEN, [SCRAM]),
        (LOOPBACK, ["OAUTHBEARER", SCRAM, "PLAIN"]),
        (TLS, ["OAUTHBEARER", "SCRAM-SHA-256-PLUS", SCRAM, "PLAIN"]),
        (showing("CN=x"), ["EXTERNAL", "OAUTHBEARER", "SCRAM-SHA-256-PLUS", SCRAM, "PLAIN"]),
        (UNIX, ["EXTERNAL", "OAUTHBEARER", SCRAM, "PLAIN"]),
        (msgspec.structs.replace(OPEN, login_required=False), [SCRAM, "ANONYMOUS"]),
    ],
)
def test_a_connection_is_offered_what_is_safe_on_it(facts, offered):
    room = LoginRoom()
    room.logins.trust([BEARER])
    assert room.logins.mechanisms(facts) == offered
    for mechanism in {*EVERY, "SCRAM-SHA-1", "GSSAPI", "", "plain"} - set(offered):
        assert "is not offered on this connection" in failure(room.step(mechanism, b"x", facts))


def test_without_issuers_no_tokens_are_taken():
    assert "OAUTHBEARER" not in LoginRoom().logins.mechanisms(TLS)


def test_an_issuer_has_one_audience():
    with pytest.raises(InvalidSetting, match="given twice"):
        LoginRoom().logins.trust([BEARER, BEARER])


def test_users_that_nobody_has_confirmed_since_a_repair_are_not_let_in():
    room = LoginRoom()
    room.access.is_confirmed = False
    assert login(room, ByHand()).reason == UNCONFIRMED
    assert failure(room.step("PLAIN", b"\0alice\0pencil")) == UNCONFIRMED
    assert failure(room.step("EXTERNAL", b"", showing("CN=bob"))) == UNCONFIRMED
    success(room.step("EXTERNAL", b"", UNIX))


def test_a_failure_says_the_same_to_the_client_whatever_the_reason():
    room = LoginRoom()
    found = [
        login(room, ByHand("nobody")), login(room, ByHand(password="x")), login(room, ByHand(header="y,,")),
        room.step("PLAIN", b"\0alice\0x"), room.step("PLAIN", b"\0bob\0x"), room.step("PLAIN", b"?"),
        room.step("EXTERNAL", b"", showing("CN=x")), room.step("GSSAPI", b""),
    ]  # fmt: skip
    assert len({str(outcome.error) for outcome in found}) == 1
    assert len({outcome.reason for outcome in found}) == len(found)


def test_failures_are_held_back_for_each_user_and_address():
    room = LoginRoom()
    assert [login(room, ByHand(password="x")).delay for _ in range(6)] == [0.25, 0.5, 1, 2, 4, 4]
    elsewhere = msgspec.structs.replace(TLS, address="192.0.2.8")
    assert login(room, ByHand(), facts=elsewhere).delay == 0
    assert login(room, ByHand("nobody"), facts=TLS).delay == 0.25
    room.clock.advance(SECOND)
    assert login(room, ByHand()).delay == 3
    assert login(room, ByHand()).delay == 0


def test_failures_by_plain_and_scram_count_together():
    room = LoginRoom()
    login(room, ByHand(password="x"))
    assert room.step("PLAIN", b"\0alice\0x").delay == 0.5
    assert room.step("PLAIN", b"\0alice\0pencil").delay == 0.5


def test_the_delays_of_a_user_that_does_not_exist_are_those_of_one_that_does():
    room = LoginRoom()
    delays = {
        user: [login(room, ByHand(user, "x")).delay for _ in range(4)] for user in ("alice", "bob", "nobody")
    }
    assert delays["alice"] == delays["bob"] == delays["nobody"]


def test_an_attempt_that_is_abandoned_is_over():
    for mechanism in ("PLAIN", SCRAM, "SCRAM-SHA-256-PLUS"):
        room = LoginRoom()
        exchange = room.begin(mechanism)
        exchange.abandon()
        assert failure(exchange.step(b"\0alice\0pencil")) == "a message after the end of a login"


def test_the_packages_are_imported_beforehand():
    room = LoginRoom()
    room.logins.trust([BEARER])
    room.logins.prepare()


def test_a_broker_without_the_package_offers_no_passwords(monkeypatch):
    monkeypatch.setattr("txbroker.login.logins.find_spec", lambda name: None)
    room = LoginRoom()
    assert room.logins.mechanisms(TLS) == []
    room.logins.prepare()


STEPS = st.lists(
    st.binary(max_size=40)
    | st.sampled_from([b"", b"\0alice\0pencil", b"n,,n=alice,r=abc", b"\x01", b"alice", b"x" * 30_000]),
    max_size=5,
)


@given(mechanism=st.sampled_from(EVERY) | st.text(max_size=9), steps=STEPS, free=st.booleans())
def test_no_dialogue_makes_anything_but_typed_outcomes(mechanism, steps, free):
    room = LoginRoom(ALICE, User("bob"))
    room.logins.trust([BEARER])
    facts = msgspec.structs.replace(showing("CN=x"), login_required=not free)
    exchange = room.begin(mechanism, facts)
    ended = 0
    for data in steps:
        outcome = exchange.step(data)
        assert isinstance(outcome, Success | Failure | Challenge | Pending)
        if isinstance(outcome, Success | Failure):
            ended += 1
        if ended > 1:
            assert isinstance(outcome, Failure), "an attempt has one outcome that counts"
        if isinstance(outcome, Failure):
            assert isinstance(outcome.error, AuthenticationFailed)
            assert len(outcome.reason) < 1_000
    assert len(room.logins._failures) <= 3
