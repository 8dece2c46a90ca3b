"""Test which addresses are of this machine alone."""

import pytest

from txbroker.loopback import is_loopback


@pytest.mark.parametrize("address", ["127.0.0.1", "127.255.255.254", "::1", "::1%lo", "::ffff:127.0.0.1"])
def test_what_stays_on_this_machine_is_loopback(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "::",
        "192.0.2.7",
        "126.255.255.255",
        "::2",
        "::ffff:192.0.2.7",
        "fe80::1%lo",
        "localhost",
        "127.1",
        "",
    ],
)
def test_nothing_else_is_and_no_name_whatever_it_stands_for(address):
    assert not is_loopback(address)
