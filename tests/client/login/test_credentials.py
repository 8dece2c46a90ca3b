"""Test the credentials of a client: what belongs together, and where secrets come from."""

import os
import pickle

import pytest

from txbroker.client.login.credentials import Credentials
from txbroker.errors import Misuse, WrongType, WrongValue


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({}, "one of them is needed"),
        ({"user": "alice"}, "one of them is needed"),
        ({"password": "x"}, "no user"),
        ({"password_file": "x"}, "no user"),
        ({"user": "a", "password": "x", "password_file": "y"}, "password and password_file"),
        ({"token": "x", "token_file": "y"}, "token and token_file"),
        ({"user": "a", "password": "x", "token": "y"}, "password and token"),
        ({"user": "a", "password": "x", "use_certificate": True}, "password and use_certificate"),
        ({"token": "x", "use_certificate": True}, "token and use_certificate"),
    ],
)
def test_parts_that_are_missing_or_contradict_each_other_are_refused(parts, reason):
    with pytest.raises(Misuse, match=reason) as caught:
        Credentials(**parts)
    assert "othing was sent" in str(caught.value)


@pytest.mark.parametrize("user", ["a b", "é", "a" * 65, "@admin", "a\n", "role:x"])
def test_a_name_that_no_user_can_have_is_refused(user):
    with pytest.raises(WrongValue, match="cannot be the name of one"):
        Credentials(user=user, password="x")


@pytest.mark.parametrize("parts", [{"user": b"a"}, {"user": "a", "password": b"x"}, {"token": 5}])
def test_a_part_of_another_type_is_refused(parts):
    with pytest.raises(WrongType, match="Nothing was sent"):
        Credentials(**parts)


def test_what_a_callable_returns_is_read_anew_and_must_be_text():
    found = iter(["one", "two", None])
    credentials = Credentials(user="a", password=lambda: next(found))
    assert [credentials.read_password(), credentials.read_password()] == ["one", "two"]
    with pytest.raises(WrongType, match="returned a NoneType"):
        credentials.read_password()


def test_what_a_callable_raises_is_passed_on():
    def fails():
        raise TimeoutError("the vault is closed")

    with pytest.raises(TimeoutError, match="the vault is closed"):
        Credentials(token=fails).read_token()


def test_a_file_is_read_anew(tmp_path):
    path = tmp_path / "token"
    for secret in ("one", "two"):
        path.write_text(secret + "\n")
        path.chmod(0o600)
        assert Credentials(token_file=os.fspath(path)).read_token() == secret


def test_no_secret_is_shown():
    credentials = Credentials(user="alice", password="geheim")
    assert repr(credentials) == str(credentials) == "Credentials(user='alice', hidden)"
    assert "geheim" not in repr([credentials])


def test_credentials_go_to_other_processes():
    credentials = Credentials(user="alice", password="geheim")
    assert pickle.loads(pickle.dumps(credentials)) == credentials
