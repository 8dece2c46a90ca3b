"""Test the headers of proxies: what they say, where they end, and that nothing else is taken for one."""

import random
import struct

import pytest

from txbroker.errors import PeerViolation
from txbroker.server.endpoints.proxy_header import MAX_BINARY, MAX_TEXT, ProxyHeader, parse

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def binary(rest, command=0x21, family=0x11):
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(rest)) + rest


FOUR = bytes([192, 0, 2, 9, 10, 0, 0, 1]) + struct.pack(">HH", 4711, 7654)
SIX = bytes.fromhex("20010db8000100020003000400050006") + bytes(16) + struct.pack(">HH", 4711, 7654)

GOOD = {
    b"PROXY TCP4 192.0.2.9 10.0.0.1 4711 7654\r\n": ("192.0.2.9", 4711),
    b"PROXY TCP6 2001:db8:1:2:3:4:5:6 ::1 4711 7654\r\n": ("2001:db8:1:2:3:4:5:6", 4711),
    b"PROXY UNKNOWN\r\n": ("", 0),
    b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n": ("", 0),
    binary(FOUR): ("192.0.2.9", 4711),
    binary(SIX, family=0x21): ("2001:db8:1:2:3:4:5:6", 4711),
    binary(FOUR + b"\x04\x00\x03abc"): ("192.0.2.9", 4711),
    binary(FOUR, command=0x20): ("", 0),
    binary(b"", command=0x20, family=0): ("", 0),
    binary(b"", family=0): ("", 0),
}
BAD = [
    b"GET / HTTP/1.1\r\n",
    b"PROXYTCP4 192.0.2.9 10.0.0.1 4711 7654\r\n",
    b"\x16\x03\x01\x02\x00",
    b"\r\n\r\n\x00\r\nQUIX",
    b"PROXY TCP4 192.0.2.9 10.0.0.1 4711\r\n",
    b"PROXY TCP4 192.0.2.9 10.0.0.1 4711 7654 1\r\n",
    b"PROXY TCP4 192.0.2.9  10.0.0.1 4711 7654\r\n",
    b"PROXY TCP4 192.0.2.256 10.0.0.1 4711 7654\r\n",
    b"PROXY TCP4 2001:db8::1 ::1 4711 7654\r\n",
    b"PROXY TCP6 192.0.2.9 10.0.0.1 4711 7654\r\n",
    b"PROXY TCP4 localhost 10.0.0.1 4711 7654\r\n",
    b"PROXY TCP4 192.0.2.9 10.0.0.1 -1 7654\r\n",
    b"PROXY TCP4 192.0.2.9 10.0.0.1 4711 65536\r\n",
    b"PROXY TCP4 192.0.2.9 10.0.0.1 \xb2 7654\r\n",
    b"PROXY TCP4 \xff 10.0.0.1 4711 7654\r\n",
    b"PROXY UDP4 192.0.2.9 10.0.0.1 4711 7654\r\n",
    b"PROXY \r\n",
    b"PROXY TCP4 " + b"1" * MAX_TEXT,
    binary(FOUR, command=0x22),
    binary(FOUR, command=0x11),
    binary(FOUR, family=0x12),
    binary(bytes(216), family=0x31),
    binary(FOUR[:-1]),
    binary(SIX[:-1], family=0x21),
    binary(bytes(MAX_BINARY)),
]


@pytest.mark.parametrize("header", GOOD)
def test_a_header_says_the_client_and_where_it_ends_in_whatever_pieces_it_comes(header):
    host, port = GOOD[header]
    for end in range(1, len(header)):
        assert parse(header[:end]) is None
    assert parse(header) == ProxyHeader(host, port, len(header))
    assert parse(header + b"PROXY TCP4") == ProxyHeader(host, port, len(header))


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_header_of_a_client_over_tcp_is_refused(data):
    with pytest.raises(PeerViolation):
        parse(data)


def test_the_longest_headers_are_taken():
    text = b"PROXY UNKNOWN".ljust(MAX_TEXT - 2, b" ") + b"\r\n"
    assert parse(text) == ProxyHeader("", 0, MAX_TEXT)
    long = binary(FOUR.ljust(MAX_BINARY - 16, b"\x00"))
    assert parse(long) == ProxyHeader("192.0.2.9", 4711, MAX_BINARY)


def test_whatever_a_proxy_sends_has_an_end():
    """More bytes than a header may have always give a header or a refusal, and nothing else is raised."""
    chance = random.Random(20)
    for _ in range(5_000):
        data = bytearray(chance.choice([*GOOD, *BAD]))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        data += chance.randbytes(MAX_BINARY)
        try:
            found = parse(bytes(data))
        except PeerViolation:
            continue
        assert found is not None
        assert found.size <= MAX_BINARY
