"""The interface by which the store of transactions has the engine journal and apply decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from journal.log.start_history import Starts
from journal.records.outcome import Outcome
from journal.records.record import AnyRecord, Scheduled
from journal.transaction_states import TransactionNumber


class Waiting(Protocol):
    """Knows the scheduled messages."""

    def conflict_of(
        self, messages: Sequence[Scheduled], ends: Sequence[int]
    ) -> tuple[int, TransactionNumber | None] | None:
        """Return what stands against taking back these messages, in logs with these ends: the id of one that does not
        wait, or that a prepared transaction holds, and that transaction. None if nothing does.
        """


class Decisions(Protocol):
    """Journals decisions, and applies them to every fold that handles them."""

    starts: Starts
    """The starts of the data: which of them began a time line."""

    def accept(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Queue a decision and apply it; return its LSN."""

    def decide(self, decision: AnyRecord, data: bytes | memoryview = b"") -> Outcome:
        """Do what :meth:`accept` does with a decision that ends a transaction; return how it ended."""

    def now(self) -> int:
        """Return journal time: µs that only grow, over restarts too."""
