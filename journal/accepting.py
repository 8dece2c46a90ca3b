"""What those who take decisions need of the engine, so that they need not know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from journal.message_store import MessageStore
from journal.record import AnyRecord


class Accepting(Protocol):
    """What the store needs of the engine."""

    forced_lsn: int

    def accept(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Journal and apply a decision."""

    def now(self) -> int:
        """Journal time."""

    def touched(self, stores: Sequence[MessageStore]) -> None:
        """Show these stores' ends with the record that was queued last."""

    def applied(self, lsn: int, stores: list[MessageStore]) -> None:
        """A large commit is in all its stores."""

    def want_flush(self, stores: Sequence[MessageStore] = ()) -> None:
        """Memory is short; these stores have something to flush."""
