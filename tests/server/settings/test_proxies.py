"""Test which addresses are those of proxies."""

import pytest

from txbroker.server.settings.proxies import Proxies


def test_addresses_and_networks_are_named_and_no_others_are_meant():
    proxies = Proxies(["192.0.2.7", "10.1.0.0/16", "2001:db8:7::/48"])
    for host in ("192.0.2.7", "::ffff:192.0.2.7", "10.1.255.255", "2001:db8:7:1::1", "2001:db8:7::%eth0"):
        assert proxies.has(host)
    for host in (
        "192.0.2.8",
        "10.2.0.0",
        "2001:db8:8::1",
        "::ffff:192.0.2.8",
        "",
        "proxy.example",
        "127.0.0.1",
    ):
        assert not proxies.has(host)
    assert proxies
    assert not Proxies()


@pytest.mark.parametrize("text", ["", "proxy.example", "10.1.0.1/16", "192.0.2.7:80", "0.0.0.0/0", "::/0"])
def test_names_and_everybody_are_refused(text):
    with pytest.raises(ValueError, match=r"."):
        Proxies([text])


@pytest.mark.parametrize(
    ("text", "are_here"),
    [("127.0.0.1", True), ("127.0.0.0/8", True), ("::1", True), ("0.0.0.0/1", True), ("10.0.0.0/8", False)],
)
def test_one_on_this_machine_is_known(text, are_here):
    assert Proxies([text]).are_here is are_here
