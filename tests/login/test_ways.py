"""Test that a certificate or token belongs to one user."""

import pytest

from journal.records.access_entries import TokenSubject, User
from tests.login.login_room import ALICE
from txbroker.errors import InvalidName, WayInTaken
from txbroker.login.ways import judge_user

USERS = {"alice": ALICE}
TOKEN = TokenSubject("https://issuer", "alice-7")


@pytest.mark.parametrize(
    "user",
    [
        User("bob"),
        User("bob", certificates=["CN=bob"], tokens=[TokenSubject("https://other", "alice-7")]),
        User("alice", certificates=["DNS:alice.example"], tokens=[TOKEN]),
        User("bob", ALICE.scram),
    ],
)
def test_a_user_with_ways_of_its_own_may_be_set(user):
    assert judge_user(USERS, user) is None


@pytest.mark.parametrize(
    ("user", "named"),
    [
        (User("bob", certificates=["CN=bob", "DNS:alice.example"]), "the certificate 'DNS:alice.example'"),
        (User("bob", tokens=[TOKEN]), "the token 'alice-7' of 'https://issuer'"),
    ],
)
def test_what_another_user_names_is_refused(user, named):
    error = judge_user(USERS, user)
    assert isinstance(error, WayInTaken)
    assert named in str(error)
    assert "user 'alice'" in str(error)
    assert "Nothing was changed" in str(error)


def test_nobody_is_called_as_those_who_do_not_log_in():
    assert isinstance(judge_user({}, User("anonymous")), InvalidName)
