"""Proxies: the addresses that may say for whom a connection is (in ``endpoints/proxied_connections.py``)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

_LOOPBACKS: Final[Any] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class Proxies:
    """The addresses and networks of proxies. Raises ValueError for a text that is neither, or that names everybody."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._networks = [_network(text) for text in texts]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, host: str) -> bool:
        """Return whether an address is one of them."""
        try:
            found = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        plain = getattr(found, "ipv4_mapped", None) or found
        return any(plain in network for network in self._networks)

    @property
    def are_here(self) -> bool:
        """Whether a proxy on this machine may be among them, which reaches what listens to the loopback interface."""
        return any(
            network.overlaps(loopback)
            for network in self._networks
            for loopback in _LOOPBACKS
            if network.version == loopback.version
        )


def _network(text: str) -> Any:
    network = ipaddress.ip_network(text.strip())
    if not network.prefixlen:
        raise ValueError(f"{text} is everybody")
    return network


NO_PROXIES: Final = Proxies()
