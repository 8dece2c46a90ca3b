"""Test the count of connections that have not logged in: in all, by address, and by network of IPv6."""

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress

from txbroker.server.connections.peer_facts import ProxiedAddress
from txbroker.server.connections.strangers import MAX_OF_ADDRESS, MAX_STRANGERS, Strangers, network_of


def four(host):
    return IPv4Address("TCP", host, 1)


def six(host):
    return IPv6Address("TCP", host, 1)


@pytest.mark.parametrize(
    ("peer", "place"),
    [
        (four("192.0.2.7"), "192.0.2.7"),
        (six("::ffff:192.0.2.7"), "192.0.2.7"),
        (six("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64"),
        (six("fe80::1%eth0"), "fe80::/64"),
        (ProxiedAddress("192.0.2.7", 1), "192.0.2.7"),
        (ProxiedAddress("2001:db8:1:2::9", 1), "2001:db8:1:2::/64"),
        (four("127.0.0.1"), ""),
        (six("::1"), ""),
        (six("::ffff:127.0.0.1"), ""),
        (UNIXAddress("/run/socket"), ""),
        (None, ""),
        (ProxiedAddress("127.0.0.1", 1), "127.0.0.1"),
        (ProxiedAddress("::1", 1), "::/64"),
    ],
)
def test_a_connection_is_counted_by_its_address_unless_it_is_of_this_machine(peer, place):
    assert network_of(peer) == place


@pytest.mark.parametrize(
    ("one", "other"),
    [(four("192.0.2.7"), four("192.0.2.8")), (six("2001:db8:1:2::1"), six("2001:db8:1:3::1"))],
    ids=["IPv4", "IPv6"],
)
def test_an_address_has_so_many_and_another_one_as_many(one, other):
    strangers = Strangers()
    for number in range(MAX_OF_ADDRESS):
        assert not strangers.obstacle(one)
        strangers.add(number, one)
    assert f"{MAX_OF_ADDRESS} connections of {network_of(one)}" in strangers.obstacle(one)
    assert not strangers.obstacle(other)
    strangers.discard(0)
    strangers.discard(0)
    assert not strangers.obstacle(one)


def test_a_whole_network_of_ipv6_is_one():
    strangers = Strangers()
    for number in range(MAX_OF_ADDRESS):
        strangers.add(number, six(f"2001:db8:1:2::{number:x}"))
    assert "2001:db8:1:2::/64" in strangers.obstacle(six("2001:db8:1:2:ffff:ffff:ffff:ffff"))


def test_there_are_so_many_in_all_also_of_this_machine():
    strangers = Strangers()
    for number in range(MAX_STRANGERS):
        assert not strangers.obstacle(four("127.0.0.1"))
        strangers.add(number, four("127.0.0.1"))
    assert len(strangers) == MAX_STRANGERS
    for peer in (four("127.0.0.1"), four("192.0.2.7"), None):
        assert f"{MAX_STRANGERS} connections have not logged in" in strangers.obstacle(peer)


def test_nothing_is_kept_of_those_that_are_gone():
    strangers = Strangers()
    for number in range(100):
        strangers.add(number, six(f"2001:db8:{number:x}::1"))
        strangers.discard(number)
    assert len(strangers) == 0
    assert not strangers._of_address
