"""Strangers: connections whose peers have not logged in yet. There are few at a time, and few of one address.

So whoever only connects takes no place from those who log in, and what it costs is bounded.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from functools import lru_cache
from typing import Any, Final

from txbroker.server.connections.peer_facts import is_local

MAX_STRANGERS: Final = 256
MAX_OF_ADDRESS: Final = 32
"""Connections of one IPv4 address, or of one /64 of IPv6, that have not logged in. This machine's own are not counted
by address, for all its programs have the same.
"""


class Strangers:
    """The connections that have not logged in yet, by their addresses."""

    def __init__(self) -> None:
        self._places: dict[Any, str] = {}
        self._of_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._places)

    def obstacle(self, peer: Any) -> str:
        """Return why no other connection of a peer's address is taken now, "" if one is."""
        if len(self._places) >= MAX_STRANGERS:
            return f"{MAX_STRANGERS} connections have not logged in yet"
        place = network_of(peer)
        if place and self._of_address[place] >= MAX_OF_ADDRESS:
            return f"{MAX_OF_ADDRESS} connections of {place} have not logged in yet"
        return ""

    def add(self, connection: Any, peer: Any = None) -> None:
        """Count a new connection. Without a peer it is counted by no address."""
        place = self._places[connection] = network_of(peer)
        if place:
            self._of_address[place] += 1

    def discard(self, connection: Any) -> None:
        """Count one no more, because it has logged in, or is gone."""
        place = self._places.pop(connection, "")
        if place:
            self._of_address[place] -= 1
            if not self._of_address[place]:
                del self._of_address[place]


def network_of(peer: Any) -> str:
    """Return what a connection is counted by: its IPv4 address, its /64 of IPv6; "" for this machine."""
    host = str(getattr(peer, "host", ""))
    return "" if not host or is_local(peer) else _network_of(host)


@lru_cache(1_024)
def _network_of(host: str) -> str:
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)
