"""Test logins by EXTERNAL and ANONYMOUS."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.parties import ADMINISTRATOR, ANONYMOUS
from journal.records.access_entries import USER_PATTERN, User
from tests.login.login_room import LOOPBACK, OPEN, TLS, LoginRoom, failure, success
from txbroker.login.external import EXTERNAL

UNIX = msgspec.structs.replace(LOOPBACK, address="unix", administrator=True)


def showing(*names):
    return msgspec.structs.replace(TLS, peer_names=names)


@pytest.mark.parametrize(
    "names",
    [("CN=alice,O=Example",), ("CN=x", "DNS:alice.example"), ("CN=alice,O=Example", "DNS:alice.example")],
)
@pytest.mark.parametrize("identity", [b"", b"alice"])
def test_a_certificate_lets_the_user_in_that_names_it(names, identity):
    assert success(LoginRoom().step(EXTERNAL, identity, showing(*names))).principal == "alice"


@pytest.mark.parametrize(
    "names",
    [
        ("CN=alice",),
        ("alice",),
        ("CN=admin",),
        ("CN=@admin",),
        ("DNS:ALICE.example",),
        ("DNS:evil", "CN=anonymous"),
    ],
)
def test_a_certificate_that_no_user_names_lets_nobody_in_whatever_it_says(names):
    assert "no user names a certificate of" in failure(LoginRoom().step(EXTERNAL, b"", showing(*names)))


@pytest.mark.parametrize("identity", [b"bob", b"Alice", b"@admin", b"alice\0", b"\xff", b"a" * 5000])
def test_a_certificate_lets_nobody_else_in(identity):
    failure(LoginRoom().step(EXTERNAL, identity, showing("DNS:alice.example")))
    failure(LoginRoom().step(EXTERNAL, identity, showing("CN=bob", "DNS:alice.example")))


def test_a_certificate_of_two_users_lets_neither_in():
    room = LoginRoom()
    assert "named by users alice, bob" in failure(
        room.step(EXTERNAL, b"", showing("DNS:alice.example", "CN=bob"))
    )
    room.set(User("carol", certificates=["CN=bob"]))
    assert "named by users bob, carol" in failure(room.step(EXTERNAL, b"", showing("CN=bob")))


def test_a_user_that_is_changed_is_found_by_what_it_names_now():
    room = LoginRoom()
    success(room.step(EXTERNAL, b"", showing("CN=bob")))
    room.set(User("bob", certificates=["CN=robert"]))
    failure(room.step(EXTERNAL, b"", showing("CN=bob")))
    assert success(room.step(EXTERNAL, b"", showing("CN=robert"))).principal == "bob"


def test_without_a_certificate_there_is_no_external():
    for facts in (TLS, LOOPBACK, OPEN):
        assert "is not offered" in failure(LoginRoom().step(EXTERNAL, b"", facts))


@pytest.mark.parametrize("identity", [b"", b"@admin"])
def test_the_administrator_comes_through_its_socket_and_is_no_user(identity):
    import re

    assert success(LoginRoom().step(EXTERNAL, identity, UNIX)).principal == ADMINISTRATOR
    assert not re.match(USER_PATTERN, ADMINISTRATOR)
    failure(LoginRoom().step(EXTERNAL, b"alice", UNIX))


def test_who_need_not_log_in_may_be_anonymous():
    free = msgspec.structs.replace(OPEN, login_required=False)
    assert success(LoginRoom().step("ANONYMOUS", b"", free)).principal == ANONYMOUS
    assert success(LoginRoom().step("ANONYMOUS", b"trace@example\xff", free)).principal == ANONYMOUS
    failure(LoginRoom().step("ANONYMOUS", b"t" * 2000, free))
    assert "is not offered" in failure(LoginRoom().step("ANONYMOUS", b"", OPEN))


@given(st.binary(max_size=80))
def test_no_bytes_make_anything_but_a_failure(data):
    if data not in (b"", b"alice"):
        failure(LoginRoom().step(EXTERNAL, data, showing("DNS:alice.example")))
