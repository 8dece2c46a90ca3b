"""The interface by which the store of transactions has the engine journal and apply decisions."""

from __future__ import annotations

from typing import Protocol

from journal.records.outcome import Outcome
from journal.records.record import AnyRecord


class Decisions(Protocol):
    """Journals decisions, and applies them to every fold that handles them."""

    def accept(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Queue a decision and apply it; return its LSN."""

    def decide(self, decision: AnyRecord, data: bytes | memoryview = b"") -> Outcome:
        """Do what :meth:`accept` does with a decision that ends a transaction; return how it ended."""

    def now(self) -> int:
        """Return journal time: µs that only grow, over restarts too."""
