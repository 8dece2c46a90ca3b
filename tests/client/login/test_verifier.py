"""Test the verifiers that clients make of passwords."""

from base64 import b64decode
from hashlib import pbkdf2_hmac, sha256

import pytest

from tests.login.scram_by_hand import mac
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import Misuse
from txbroker.login.passwords import proves


def test_a_verifier_is_that_of_rfc_5802():
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    made = verifier_of("pencil", 4096, salt)
    assert (made.salt, made.iterations) == (salt, 4096)
    assert made.stored_key == sha256(mac(salted, b"Client Key")).digest()
    assert made.server_key == mac(salted, b"Server Key")


def test_a_verifier_is_new_each_time_and_proven_by_its_password_alone():
    first, second = verifier_of("pencil"), verifier_of("pencil")
    assert first.iterations == 15_000
    assert len(first.salt) == 16
    assert first.salt != second.salt
    assert proves(first, b"pencil")
    assert not proves(first, b"pencil ")


@pytest.mark.parametrize("password", ["p\u00adencil", "pencil", "\uff50encil"])
def test_a_password_is_prepared(password):
    assert verifier_of(password, 4096, b"s" * 16) == verifier_of("pencil", 4096, b"s" * 16)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("pencil", 4095), "iterations"),
        (("pencil", 1_000_001), "iterations"),
        (("pencil", 4096, b"s" * 15), "salt has 15 bytes"),
        (("pencil", 4096, b"s" * 65), "salt has 65 bytes"),
        (("",), "empty"),
        (("p" * 1025,), "1,024 are the most"),
        (("pen\0cil",), "none is zero"),
        (("pen\u0007cil",), "SASLprep"),
        (("\ud800",), "UTF-8"),
    ],
)
def test_what_makes_no_verifier_is_refused_without_showing_the_password(arguments, reason):
    with pytest.raises(Misuse, match=reason) as caught:
        verifier_of(*arguments)
    assert "othing was sent" in str(caught.value)
    assert "pen" not in str(caught.value)
