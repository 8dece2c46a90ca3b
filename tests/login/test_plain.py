"""Test logins by PLAIN: off the loop, in a bounded line, known again."""

import queue
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.records.access_entries import User
from tests.login.login_room import ALICE, LOOPBACK, OPEN, TLS, LoginRoom, failure, success
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import StorageUnavailable, TooManyLogins
from txbroker.login import passwords
from txbroker.login.outcomes import Challenge, Failure, Pending
from txbroker.login.plain import PLAIN

RIGHT = b"\0alice\0pencil"


@pytest.mark.parametrize("facts", [TLS, LOOPBACK])
@pytest.mark.parametrize("identity", [b"", b"alice"])
def test_a_right_password_is_let_in(facts, identity):
    assert success(LoginRoom().step(PLAIN, identity + RIGHT, facts)).principal == "alice"


def test_where_others_can_listen_there_is_no_plain():
    room = LoginRoom()
    assert "is not offered on this connection" in failure(room.step(PLAIN, RIGHT, OPEN))
    assert PLAIN not in room.logins.mechanisms(OPEN)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\0alice\0pen", "the password is wrong"),
        (b"\0alice\0pencil\0", "no PLAIN"),
        (b"\0nobody\0pencil", "there is no such user with a password"),
        (b"\0bob\0pencil", "there is no such user with a password"),
        (b"bob\0alice\0pencil", "the identity is another"),
        (b"\0alice\0", "no PLAIN"),
        (b"\0\0pencil", "no PLAIN"),
        (b"alice\0pencil", "no PLAIN"),
        (b"\0ali ce\0pencil", "no PLAIN"),
        (b"\0" + b"a" * 65 + b"\0pencil", "no PLAIN"),
        (b"\0alice\0\xff\xff", "the password is wrong"),
        (b"\0alice\0" + b"p" * 5000, "a message of 5007 bytes"),
        ("\0alice\0pen\u0378cil".encode(), "the password is wrong"),
    ],
)
def test_what_is_not_right_is_refused(message, reason):
    assert reason in failure(LoginRoom().step(PLAIN, message))


def test_a_password_is_prepared_as_the_client_prepares_it():
    room = LoginRoom(User("alice", verifier_of("I\u00adX \u2168", 4096)))
    assert success(room.step(PLAIN, b"\0alice\0IX IX")).principal == "alice"


def test_a_client_without_an_initial_response_is_asked_for_it():
    room = LoginRoom()
    exchange = room.begin(PLAIN)
    assert exchange.step(b"") == Challenge(b"")
    assert exchange.step(RIGHT) == Pending()


def test_what_proved_right_is_known_again_at_once():
    room = LoginRoom()
    success(room.step(PLAIN, RIGHT))
    assert success(room.begin(PLAIN).step(RIGHT)).principal == "alice"
    assert room.worker.work == []
    assert room.begin(PLAIN).step(b"\0alice\0pencil2") == Pending()


def test_a_wrong_password_is_not_remembered_as_anything():
    room = LoginRoom()
    failure(room.step(PLAIN, b"\0alice\0pen"))
    assert room.begin(PLAIN).step(b"\0alice\0pen") == Pending()


def test_nothing_is_known_again_once_the_user_has_another_verifier():
    for changed in (verifier_of("pencil", 4096), verifier_of("other", 4096), None):
        room = LoginRoom()
        success(room.step(PLAIN, RIGHT))
        room.set(User("alice", changed))
        assert room.begin(PLAIN).step(RIGHT) == Pending()
    room = LoginRoom()
    success(room.step(PLAIN, RIGHT))
    room.remove("alice")
    assert "no such user" in failure(room.step(PLAIN, RIGHT))


def test_a_password_of_one_user_is_not_known_as_another_users():
    room = LoginRoom(ALICE, User("carol", ALICE.scram))
    success(room.step(PLAIN, RIGHT))
    assert room.begin(PLAIN).step(b"\0carol\0pencil") == Pending()


def test_a_user_that_changes_while_its_password_is_checked_is_not_let_in():
    room = LoginRoom()
    assert room.begin(PLAIN).step(RIGHT) == Pending()
    room.set(User("alice", verifier_of("pen", 4096)))
    room.worker.step()
    assert "changed during the login" in failure(room.outcomes.pop())


def test_the_same_question_is_asked_once_for_all_who_wait():
    room = LoginRoom()
    for _ in range(50):
        assert room.begin(PLAIN).step(RIGHT) == Pending()
    assert len(room.worker.work) == 1
    room.worker.step()
    assert [success(outcome).principal for outcome in room.outcomes] == ["alice"] * 50


def test_the_line_is_bounded_and_a_full_one_says_to_try_again(monkeypatch):
    monkeypatch.setattr(passwords, "MAX_WAITING", 3)
    room = LoginRoom()
    for number in range(3):
        assert room.begin(PLAIN).step(b"\0alice\0%d" % number) == Pending()
    outcome = room.begin(PLAIN).step(RIGHT)
    assert isinstance(outcome, Failure)
    assert type(outcome.error) is TooManyLogins
    assert isinstance(outcome.error, StorageUnavailable)
    assert (outcome.delay, "Try again" in str(outcome.error)) == (0, True)
    assert len(room.worker.work) == 3
    room.worker.step()
    assert room.begin(PLAIN).step(RIGHT) == Pending()


def test_a_pool_that_fails_says_to_try_again():
    room = LoginRoom()
    room.begin(PLAIN).step(RIGHT)
    _, _, failed = room.worker.work.pop()
    failed(RuntimeError("the pool is closed"))
    assert isinstance(room.outcomes.pop().error, TooManyLogins)
    assert room.logins._passwords.waiting == 0


def test_an_attempt_whose_connection_is_lost_is_told_nothing_and_costs_nothing(monkeypatch):
    room = LoginRoom()
    exchange = room.begin(PLAIN)
    exchange.step(RIGHT)
    exchange.abandon()
    monkeypatch.setattr(passwords, "proves", None)
    room.worker.step()
    assert (room.outcomes, room.worker.work, room.logins._passwords.waiting) == ([], [], 0)


def test_who_comes_after_an_abandoned_attempt_is_judged_all_the_same():
    room = LoginRoom()
    exchange = room.begin(PLAIN)
    exchange.step(RIGHT)
    exchange.abandon()
    work, done, _ = room.worker.work.pop()
    found = work()
    assert room.begin(PLAIN).step(RIGHT) == Pending()
    done(found)
    room.worker.step()
    assert success(room.outcomes.pop()).principal == "alice"


def test_a_client_that_does_not_wait_is_refused_once():
    room = LoginRoom()
    exchange = room.begin(PLAIN)
    exchange.step(RIGHT)
    assert "while the password was being checked" in failure(exchange.step(RIGHT))
    room.worker.step()
    assert room.outcomes == []


def test_what_is_known_again_is_bounded(monkeypatch):
    monkeypatch.setattr(passwords, "MAX_REMEMBERED", 3)
    room = LoginRoom(*(User(f"u{number}", ALICE.scram) for number in range(6)))
    for number in range(6):
        success(room.step(PLAIN, b"\0u%d\0pencil" % number))
    assert room.logins._passwords.remembered == 3


def test_the_password_is_nowhere_to_be_seen():
    room = LoginRoom()
    exchange = room.begin(PLAIN)
    outcome = exchange.step(b"\0alice\0geheim")
    room.worker.step()
    checker = room.logins._passwords
    shown = [repr(it) for it in (exchange, outcome, room.outcomes, room.logins, checker, checker._right)]
    assert "geheim" not in "".join(shown)


@given(
    st.lists(st.sampled_from([b"\0", b"alice", b"bob", b"pencil", b"\xff"]) | st.binary(max_size=9)).map(
        b"".join
    )
)
def test_no_bytes_make_anything_but_a_typed_outcome(message):
    outcome = LoginRoom().step(PLAIN, message)
    assert outcome == Challenge(b"") or message[-13:] == RIGHT or failure(outcome)


@pytest.mark.slow
def test_a_thousand_clients_that_come_back_together_are_in_within_ten_seconds():
    """Each is another user. By processor time of the two threads: other programs may run beside the test."""
    verifier = verifier_of("pencil")
    room = LoginRoom(*(User(f"u{number}", verifier) for number in range(1_000)))
    back: queue.SimpleQueue = queue.SimpleQueue()
    with ThreadPoolExecutor(2) as pool:

        def timed(work, done):
            begun = time.thread_time()
            result = work()
            back.put((done, result, time.thread_time() - begun))

        room.worker.submit = lambda work, done, failed: pool.submit(timed, work, done)
        room.logins._passwords._run_blocking = room.worker.submit
        for number in range(1_000):
            assert room.begin(PLAIN).step(b"\0u%d\0pencil" % number) == Pending()
        spent = 0.0
        for _ in range(1_000):
            done, result, seconds = back.get(timeout=60)
            spent += seconds
            done(result)
    assert {success(outcome).principal for outcome in room.outcomes} == {f"u{n}" for n in range(1_000)}
    assert spent / 2 < 10
