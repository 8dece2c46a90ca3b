"""Test what is known of a connection before a login: its address, and whether anybody can listen."""

from types import SimpleNamespace

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress

from txbroker.server.connections.peer_facts import ProxiedAddress, facts_of


@pytest.mark.parametrize(
    ("peer", "address", "secure"),
    [
        (IPv4Address("TCP", "127.0.0.1", 1), "127.0.0.1", True),
        (IPv4Address("TCP", "127.9.9.9", 1), "127.9.9.9", True),
        (IPv6Address("TCP", "::1", 1), "::1", True),
        (IPv6Address("TCP", "::ffff:127.0.0.1", 1), "::ffff:127.0.0.1", True),
        (UNIXAddress("/run/socket"), "unix", True),
        (IPv4Address("TCP", "192.0.2.7", 1), "192.0.2.7", False),
        (IPv6Address("TCP", "2001:db8::1", 1), "2001:db8::1", False),
        (ProxiedAddress("192.0.2.7", 1), "192.0.2.7", False),
        (ProxiedAddress("127.0.0.1", 1), "127.0.0.1", False),
        (ProxiedAddress("::1", 1), "::1", False),
    ],
)
def test_only_what_stays_on_this_machine_is_secure_without_tls(peer, address, secure):
    facts = facts_of(SimpleNamespace(getPeer=lambda: peer))
    assert (facts.address, facts.secure) == (address, secure)
    assert not facts.administrator
