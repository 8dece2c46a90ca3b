"""IP addresses of this machine alone: between two ends that have them nobody can listen."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(1_024)
def is_loopback(address: str) -> bool:
    """Return whether an IP address is one of this machine alone, as IPv4, IPv6, or IPv4 within IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
