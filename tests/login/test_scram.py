"""Test logins by SCRAM, against the vector of RFC 7677 and a client made by hand."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.records.access_entries import DEFAULT_ITERATIONS, ScramVerifier, User
from tests.login.login_room import ALICE, HASH, OPEN, PENCIL, TLS, LoginRoom, failure, success
from tests.login.scram_by_hand import ByHand
from tests.support.counted_calls import calls
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import AuthenticationFailed
from txbroker.login import scram
from txbroker.login.outcomes import Challenge, Failure
from txbroker.login.scram import SCRAM, SCRAM_PLUS

BOUND = "p=tls-server-end-point,,"


def login(room, by_hand, mechanism=SCRAM, facts=TLS):
    exchange = room.begin(mechanism, facts)
    challenge = exchange.step(by_hand.first())
    if not isinstance(challenge, Challenge):
        return challenge
    return exchange.step(by_hand.final(challenge.data))


def test_the_messages_are_those_of_rfc_7677(monkeypatch):
    verifier = verifier_of("pencil", 4096, bytes.fromhex("5b6d99689d12358eeca04b141236fa81"))
    room = LoginRoom(User("user", verifier))
    monkeypatch.setattr(scram, "b64encode", lambda _: b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    exchange = room.begin(SCRAM, OPEN)
    challenge = exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == Challenge(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert success(exchange.step(final)).data == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    ("mechanism", "facts", "header", "bound"),
    [
        (SCRAM, OPEN, "n,,", b""),
        (SCRAM, OPEN, "y,,", b""),
        (SCRAM, TLS, "n,,", b""),
        (SCRAM, OPEN, "n,a=alice,", b""),
        (SCRAM, OPEN, "y,a=alice,", b""),
        (SCRAM_PLUS, TLS, BOUND, HASH),
        (SCRAM_PLUS, TLS, "p=tls-server-end-point,a=alice,", HASH),
    ],
)
def test_a_right_password_is_let_in_and_the_broker_proves_itself(mechanism, facts, header, bound):
    by_hand = ByHand(header=header, bound=bound)
    found = success(login(LoginRoom(), by_hand, mechanism, facts))
    assert (found.principal, found.data, found.valid_until, found.delay) == (
        "alice",
        by_hand.server_final,
        None,
        0.0,
    )


@pytest.mark.parametrize(
    ("mechanism", "header", "bound", "reason"),
    [
        (SCRAM_PLUS, BOUND, HASH[::-1], "bindings don't match"),
        (SCRAM_PLUS, BOUND, b"", "bindings don't match"),
        (SCRAM_PLUS, "n,,", b"", "doesn't require channel binding"),
        (SCRAM_PLUS, "y,,", b"", "but in fact it does"),
        (SCRAM_PLUS, "p=tls-unique,,", HASH, "doesn't match the channel binding name"),
        (SCRAM_PLUS, "p=tls-exporter,,", HASH, "not supported"),
        (SCRAM, "y,,", b"", "but in fact it does"),
        (SCRAM, BOUND, HASH, "a channel is bound in SCRAM-SHA-256"),
        (SCRAM, "n,a=bob,", b"", "the identity is another"),
        (SCRAM_PLUS, "p=tls-server-end-point,a=alice,", HASH[::-1], "bindings don't match"),
    ],
)
def test_a_channel_that_somebody_sits_in_and_a_downgrade_are_refused(mechanism, header, bound, reason):
    assert reason in failure(login(LoginRoom(), ByHand(header=header, bound=bound), mechanism))


def test_another_header_than_the_one_that_was_sent_is_refused():
    for sent, bound in (("n,a=alice,", "n,,"), ("n,,", "n,a=alice,"), ("n,a=alice,", "y,a=alice,")):
        by_hand = ByHand(header=sent)
        by_hand.input = bound.encode()
        assert "bindings don't match" in failure(login(LoginRoom(), by_hand, facts=OPEN))


@pytest.mark.parametrize("user", ["bob", "nobody"])
def test_a_user_without_a_password_is_refused_after_the_same_messages_as_a_wrong_password(user):
    assert "no such user with a password" in failure(login(LoginRoom(), ByHand(user)))
    assert "The client keys don't match" in failure(login(LoginRoom(), ByHand(password="pen")))


@pytest.mark.parametrize("user", ["bob", "nobody", "ALICE", "anonymous"])
def test_the_challenge_of_a_user_without_a_password_looks_like_that_of_one_with(user):
    room = LoginRoom(User("alice", verifier_of("pencil")), User("bob"))
    salts = []
    for name in ("alice", user, user):
        challenge = room.begin(SCRAM).step(ByHand(name).first())
        nonce, salt, iterations = (part[2:] for part in challenge.data.split(b",", 2))
        assert (len(nonce), len(salt), iterations) == (48, 24, b"%d" % DEFAULT_ITERATIONS)
        salts.append(salt)
    assert salts[0] != salts[1] == salts[2]
    another = LoginRoom()
    another.access.key = b"l" * 32
    assert salts[1] not in another.begin(SCRAM).step(ByHand(user).first()).data


def test_a_user_that_does_not_exist_costs_the_same_work():
    """The calls of Python and C are counted, for seconds say little on a busy machine."""
    room = LoginRoom(User("alice", verifier_of("pencil")), User("bob"))
    login(
        room, ByHand("another", "wrong"), facts=OPEN
    )  # what is done once: imports, the address in the table
    done = {}
    for user in ("alice", "bobby", "carol"):
        by_hand = ByHand(user, "wrong")
        exchange = room.begin(SCRAM, OPEN)
        challenges = []
        begun = calls(lambda e=exchange, b=by_hand, c=challenges: c.append(e.step(b.first())))
        proof = by_hand.final(challenges[0].data)
        done[user] = (begun, calls(lambda e=exchange, p=proof: e.step(p)))
    assert len(done["alice"][0]) > 100
    assert done["alice"] == done["bobby"] == done["carol"]


def test_a_user_that_changes_during_the_login_is_not_let_in_by_what_it_was():
    for change in (
        lambda room: room.set(User("alice", verifier_of("pen", 4096))),
        lambda room: room.set(User("alice")),
        lambda room: room.remove("alice"),
    ):
        room, by_hand = LoginRoom(), ByHand()
        exchange = room.begin(SCRAM, OPEN)
        challenge = exchange.step(by_hand.first())
        change(room)
        assert "changed during the login" in failure(exchange.step(by_hand.final(challenge.data)))


def test_a_proof_works_once():
    room, by_hand = LoginRoom(), ByHand()
    exchange = room.begin(SCRAM, OPEN)
    final = by_hand.final(exchange.step(by_hand.first()).data)
    success(exchange.step(final))
    assert failure(exchange.step(final)) == "a message after the end of a login"
    again = room.begin(SCRAM, OPEN)
    again.step(by_hand.first())
    assert "nonce doesn't match" in failure(again.step(final))


def test_a_verifier_that_nobody_knows_the_password_of_lets_nobody_in():
    room = LoginRoom(User("alice", ScramVerifier(b"s" * 16, 4096, bytes(32), bytes(32))))
    assert "keys don't match" in failure(login(room, ByHand()))


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=al ice,r=abc", b"n,,n=al=2Cice,r=abc", b"n,,n=" + b"a" * 65 + b",r=abc", b"n,,n=@admin,r=abc",
        "n,,n=alíce,r=abc".encode(), b"x,,n=alice,r=abc", b"n,,r=abc", b"n,,m=x,n=alice,r=abc", b"\xff\x00",
        b"n" * 1025, b"n,,n=alice,r=" + b"a" * 1100, b"p=,,n=alice,r=abc", b"n,a=,n=alice,r=abc", b"n,,n=alice,r=a\nb",
        b"n,,n=alice,r=",
    ],
)  # fmt: skip
def test_what_is_no_first_message_is_refused(first):
    failure(LoginRoom().step(SCRAM, first, OPEN))


def test_a_client_without_an_initial_response_is_asked_for_it_once():
    exchange = LoginRoom().begin(SCRAM, OPEN)
    assert exchange.step(b"") == Challenge(b"")
    failure(exchange.step(b""))


PIECES = st.lists(
    st.sampled_from([
        b"n,,", b"y,,", b"p=tls-server-end-point,,", b"n=alice", b"n=nobody", b",", b"=", b"r=abc", b"c=biws", b"p=",
        b"a=", b"m=1", b"i=4096", b"i=99999999999999999999", b"s=AAAA", b"v=", b"e=x", b"\0", b"\xff", b"AAAA",
    ]) | st.binary(max_size=20),
    max_size=12,
).map(b"".join)  # fmt: skip


@given(first=PIECES, final=PIECES, plus=st.booleans())
def test_no_bytes_make_anything_but_a_challenge_or_a_failure(first, final, plus):
    room = LoginRoom()
    exchange = room.begin(SCRAM_PLUS if plus else SCRAM)
    outcome = exchange.step(first)
    assert isinstance(outcome, Challenge | Failure)
    if isinstance(outcome, Challenge):
        outcome = exchange.step(final)
        assert isinstance(outcome, Challenge | Failure)
    if isinstance(outcome, Failure):
        assert isinstance(outcome.error, AuthenticationFailed)
        assert len(outcome.reason) < 400


@given(final=PIECES)
def test_no_bytes_in_the_place_of_a_proof_let_anybody_in(final):
    room = LoginRoom()
    exchange = room.begin(SCRAM)
    nonce = exchange.step(ByHand().first()).data.split(b",")[0][2:]
    for data in (
        final,
        b"c=biws,r=" + nonce + b",p=" + b64encode(final),
        b"c=biws,r=" + nonce + b"," + final,
    ):
        exchange = room.begin(SCRAM)
        exchange.step(ByHand().first())
        failure(exchange.step(data))


def test_no_secret_is_shown():
    room = LoginRoom()
    exchange = room.begin(SCRAM)
    challenge = exchange.step(ByHand().first())
    for shown in (repr(exchange), repr(challenge), repr(room.logins), repr(ALICE)):
        assert repr(PENCIL.salt)[2:-1] not in shown
        assert "c2FsdHNhbHRz" not in shown
