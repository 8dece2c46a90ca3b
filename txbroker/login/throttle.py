"""Failed logins and the delays that they bring: for each user from each address, in a table of bounded size."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 4.0
"""Seconds; each failure doubles the delay, from the first to the longest."""
DECAY: Final = 30.0
"""Seconds in which one failure is forgotten."""
MAX_ENTRIES: Final = 10_000
MAX_NAMES: Final = 64
"""Most names that are counted one by one for an address. All others from there are counted as one, so that names that
are made up neither fill the table nor come without a delay."""
_MOST: Final = 5.0
_OTHERS: Final = ""
_MAX_KEPT: Final = 255

assert FIRST_DELAY * 2 ** (_MOST - 1) == LONGEST_DELAY


@dataclass(slots=True)
class _Failures:
    level: float = 0.0
    counted: float = 0.0
    owed_until: float = 0.0


class FailureTable:
    """Counts failures by address and user. ``seconds`` is a clock that only grows.

    An address of IPv6 counts with its network of 64 bits. Nobody is locked out: a delay is a few seconds at most, and
    failures from one address delay nobody who comes from another. The longest unused entry makes room for a new one.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._entries: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        self._names: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def failed(self, address: str, user: str) -> float:
        """Count a failure; return for how many seconds its refusal is to be held back."""
        now = self._seconds()
        key = self._key(address, user)
        entry = self._entries.get(key) or self._insert(key)
        self._entries.move_to_end(key)
        entry.level = min(_MOST, max(0.0, entry.level - (now - entry.counted) / DECAY) + 1.0)
        entry.counted = now
        delay = float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** max(0.0, entry.level - 1.0)))
        entry.owed_until = now + delay
        return delay

    def succeeded(self, address: str, user: str) -> float:
        """Forget the failures; return for how many seconds the good news is to be held back.

        As long as a failure just before is: else silence alone would tell a guesser that the guess was wrong.
        """
        key = self._key(address, user)
        entry = self._entries.pop(key, None)
        if entry is None:
            return 0.0
        self._left(key)
        return max(0.0, entry.owed_until - self._seconds())

    def _key(self, address: str, user: str) -> tuple[str, str]:
        place = network_of(address)
        if (place, user) in self._entries or self._names[place] < MAX_NAMES:
            return place, user
        return place, _OTHERS

    def _insert(self, key: tuple[str, str]) -> _Failures:
        if len(self._entries) >= MAX_ENTRIES:
            oldest, _ = self._entries.popitem(last=False)
            self._left(oldest)
        self._names[key[0]] += 1
        entry = self._entries[key] = _Failures()
        return entry

    def _left(self, key: tuple[str, str]) -> None:
        self._names[key[0]] -= 1
        if not self._names[key[0]]:
            del self._names[key[0]]


def network_of(address: str) -> str:
    """Return what failures from an address are counted by: of IPv6 the network, for one machine has all of it."""
    try:
        found = ip_address(address)
    except ValueError:
        return address[:_MAX_KEPT]
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{IPv6Address(int(found) >> 64 << 64)}/64"
    return str(found)
