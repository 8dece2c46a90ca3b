"""What a client knows of its connection before it logs in."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from txbroker.client.core.login import Channel
from txbroker.client.core.url import Address
from txbroker.loopback import is_loopback


def channel_of(address: Address, host: str, certificate: bytes | None) -> Channel:
    """Return it for a connection to an address, which was made to the ``host`` (an IP address; "" for a UNIX socket),
    and on which the broker has shown a certificate (DER).
    """
    return Channel(address.kind in ("tls", "unix") or is_loopback(host), certificate)


def channel_of_socket(address: Address, connection: socket.socket) -> Channel:
    """Return it for a connected socket. Raises ``OSError`` if it is connected no more."""
    certificate = None
    if isinstance(connection, ssl.SSLSocket):
        certificate = connection.getpeercert(binary_form=True)
    return channel_of(address, host_of(connection.getpeername()), certificate)


def host_of(name: Any) -> str:
    """Return the IP address in the name of a socket, "" if it has none."""
    return str(name[0]) if isinstance(name, tuple) and name else ""
