"""The allowance of a principal: its quotas, its open sessions, and buckets of bytes.

:mod:`txbroker.broker.access.quotas` sees that it is kept.
"""

from __future__ import annotations

from typing import Any

from journal.records.access_entries import Quotas
from txbroker.broker.sessions.settings import SECOND


class Bucket:
    """A token bucket of one second's bytes. ``waits``: it is below zero, and a call is due when it is not."""

    __slots__ = ("at", "level", "rate", "waits")

    def __init__(self, rate: int, now: int) -> None:
        self.rate = rate
        self.level = float(rate)
        self.at = now
        self.waits = False

    def take(self, size: int, now: int) -> float:
        """Take so many bytes; return for how many seconds it is below zero."""
        self.level = min(float(self.rate), self.level + self.rate * (now - self.at) / SECOND) - size
        self.at = now
        return max(0.0, -self.level / self.rate)


class Allowance:
    """The quotas of one principal, and its open sessions."""

    __slots__ = ("incoming", "outgoing", "principal", "quotas", "sessions")

    def __init__(self, principal: str, quotas: Quotas, now: int) -> None:
        self.principal = principal
        self.sessions: dict[Any, None] = {}
        self.incoming: Bucket | None = None
        self.outgoing: Bucket | None = None
        self.alter(quotas, now)

    def alter(self, quotas: Quotas, now: int) -> None:
        """Take other quotas."""
        self.quotas = quotas
        self.incoming = _altered(self.incoming, quotas.bytes_in, now)
        self.outgoing = _altered(self.outgoing, quotas.bytes_out, now)

    @property
    def holds_fetches(self) -> bool:
        """Whether no fetch is carried out now."""
        return self.outgoing is not None and self.outgoing.waits


def _altered(bucket: Bucket | None, rate: int | None, now: int) -> Bucket | None:
    if rate is None or (bucket is not None and bucket.rate == rate):
        return bucket if rate is not None else None
    return Bucket(rate, now)
