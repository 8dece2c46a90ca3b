import pytest

from txbroker.client.url import Address, parse
from txbroker.errors import Misuse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("tcp:127.0.0.1:7654", Address("tcp", "127.0.0.1", 7654)),
        ("tcp:[::1]:7654", Address("tcp", "::1", 7654)),
        ("unix:/run/a:b", Address("unix", path="/run/a:b")),
        ("tls:broker.example:7655", Address("tls", "broker.example", 7655)),
        ("tls:broker.example:7655:ca=my:ca.pem", Address("tls", "broker.example", 7655, ca="my:ca.pem")),
    ],
)
def test_an_address_is_read(url, address):
    assert parse(url) == address
    assert parse(address.place)[:4] == address[:4]


@pytest.mark.parametrize(
    "url",
    ["", "tcp:", "tcp:host", "tcp:host:", "tcp:host:0", "tcp:host:65536", "tcp:host:x", "tcp::1", "unix:",
     "http://host:1", "tcp:host:1:ca=a", "tls:host:1:ca=", "tls:host:1:key=a", "tcp:host:¹"],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_the_forms_that_are(url):
    with pytest.raises(Misuse, match=r"tcp:HOST:PORT"):
        parse(url)
