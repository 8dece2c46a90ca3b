"""How decisions are journaled and applied: what the store of transactions needs of the engine."""

from __future__ import annotations

from typing import Protocol

from journal.formats.outcome import Outcome
from journal.formats.record import AnyRecord


class Decisions(Protocol):
    """Whoever journals decisions, and applies them to every fold that handles them."""

    def accept(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Queue a decision and apply it; return its LSN."""

    def decide(self, decision: AnyRecord, data: bytes | memoryview = b"") -> Outcome:
        """As :meth:`accept`, of a decision that ends a transaction; return how it ended."""

    def now(self) -> int:
        """Journal time: µs that only grow, over restarts too."""
