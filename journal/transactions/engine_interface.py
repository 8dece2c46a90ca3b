"""What those who take decisions need of the engine, and it of its housekeeping, so that neither need know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from journal.formats.record import AnyRecord
from journal.log.message_store import MessageStore
from journal.transactions.commit_application import SlicedApply


class Accepting(Protocol):
    """What the store needs of the engine."""

    forced_lsn: int
    passing: bool

    def accept(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Journal and apply a decision."""

    def queue(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Journal a decision; the caller applies it."""

    def now(self) -> int:
        """Journal time."""

    def touched(self, stores: Sequence[MessageStore]) -> None:
        """Show these stores' ends with the record that was queued last."""

    def applied(self, commit: SlicedApply) -> None:
        """A large commit is in all its stores."""

    def want_flush(self, stores: Sequence[MessageStore] = ()) -> None:
        """Memory is short; these stores have something to flush."""


class Housekeeps(Protocol):
    """What is done beside the cycle: :class:`journal.engine.housekeeping.Housekeeping`.

    ``free_bytes`` of the disk there were at the last look; ``reserve_bytes`` of it are not for new work.
    """

    free_bytes: int
    reserve_bytes: int

    @property
    def checkpoint_lsn(self) -> int:
        """The LSN of the newest checkpoint, 0 without one."""

    def jobs(self, now: int) -> list[Any]:
        """What is due."""

    def finish(self, job: Any) -> None:
        """A job has run."""

    def want_flush(self) -> None:
        """Flush all that may be."""

    @property
    def pins(self) -> int:
        """How many pins keep files from being removed."""

    def pin(self) -> Any:
        """Remove no file; a :class:`journal.engine.garbage.Pin`. Raises DiskFull where space is scarce."""

    def unpin(self, pin: Any) -> None:
        """Let a pin go."""

    def run_inline(self) -> None:
        """Run what is due on this thread."""

    def checkpoint_inline(self) -> None:
        """Write a checkpoint on this thread."""
