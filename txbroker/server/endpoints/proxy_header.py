"""The header by which a proxy says whose a connection is: the PROXY protocol of HAProxy, versions 1 and 2.

Bytes in, an address out. Twisted's parsers of the same are not used: they take no header that comes in two pieces, and
fail with other errors than their own at a port that is no number.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, NamedTuple

from txbroker.errors import PeerViolation

MAX_TEXT: Final = 107
"""Bytes of the longest header of version 1, with its end."""
MAX_BINARY: Final = 2048
"""Most bytes of a header of version 2: what proxies add to the addresses is some hundred bytes, with the subject of a
certificate."""

_TEXT: Final = b"PROXY "
_BINARY: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD: Final = struct.Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
"""The version, 2, and the command."""
_UNSPECIFIED, _TCP4, _TCP6 = 0x00, 0x11, 0x21
_ADDRESSES: Final = {_TCP4: struct.Struct(">4s4sHH"), _TCP6: struct.Struct(">16s16sHH")}
_NO_CLIENT: Final = "a PROXY header that does not say a client's address and port"
_FAMILIES: Final = {b"TCP4": ipaddress.IPv4Address, b"TCP6": ipaddress.IPv6Address}


class ProxyHeader(NamedTuple):
    """A whole header: the client's address and port, and how many bytes the header has.

    ``host`` is "" if it names no client: the proxy looks whether somebody answers, or does not know.
    """

    host: str
    port: int
    size: int


def parse(data: bytes) -> ProxyHeader | None:
    """Return the header at the beginning of what a proxy has sent; None if there must be more of it.

    Raises PeerViolation at the first byte that cannot be of one.
    """
    if data[: len(_BINARY)] == _BINARY[: len(data)]:
        return _binary(data)
    if data[: len(_TEXT)] == _TEXT[: len(data)]:
        return _text(data)
    raise PeerViolation("it is a proxy (proxies), and does not begin with a PROXY header")


def _text(data: bytes) -> ProxyHeader | None:
    line, end, _ = data[:MAX_TEXT].partition(b"\r\n")
    if not end:
        if len(data) < MAX_TEXT:
            return None
        raise PeerViolation(f"a PROXY header of more than {MAX_TEXT} bytes")
    size = len(line) + len(end)
    match line.split(b" "):
        case [_, b"UNKNOWN", *_]:
            return ProxyHeader("", 0, size)
        case [_, family, source, destination, port, other] if family in _FAMILIES:
            try:
                host = _FAMILIES[family](source.decode("ascii"))
                _FAMILIES[family](destination.decode("ascii"))
                _port(other)
                return ProxyHeader(str(host), _port(port), size)
            except ValueError as error:
                raise PeerViolation(_NO_CLIENT) from error
    raise PeerViolation(_NO_CLIENT)


def _port(text: bytes) -> int:
    if not (0 < len(text) < 6 and text.isdigit() and 0 < int(text) < 65_536):
        raise ValueError(f"{text!r} is not a port")
    return int(text)


def _binary(data: bytes) -> ProxyHeader | None:
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    size = _HEAD.size + length
    if command not in (_LOCAL, _PROXY) or size > MAX_BINARY:
        raise PeerViolation(f"a PROXY header of version and command {command:#x}, and {size} bytes")
    if len(data) < size:
        return None
    if command == _LOCAL or family == _UNSPECIFIED:
        return ProxyHeader("", 0, size)
    layout = _ADDRESSES.get(family)
    if layout is None or length < layout.size:
        raise PeerViolation(f"a PROXY header of a client that does not come over TCP (family {family:#x})")
    source, _, port, _ = layout.unpack_from(data, _HEAD.size)
    return ProxyHeader(str(ipaddress.ip_address(source)), port, size)
