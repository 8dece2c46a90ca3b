"""Which messages of a queue are ready, and which sessions have: of all its priorities together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from journal.folds.queues import DeclaredQueue
from txbroker.queues.level import Level


class LevelDeliveries(Level):
    """The messages of one priority of a queue, of which it is a part."""

    whole: QueueDeliveries
    """All messages of the queue."""


class Handed(NamedTuple):
    """Messages of one priority that a holder was given, as runs of offsets, (first, end). Those from offset ``fresh``
    on were not handed out before.
    """

    level: LevelDeliveries
    runs: list[tuple[int, int]]
    fresh: int


class QueueDeliveries:
    """The messages of a queue, of all its priorities, the highest first."""

    def __init__(self, queue: DeclaredQueue, levels: Sequence[LevelDeliveries], now: int) -> None:
        self.queue, self.levels = queue, levels
        for each in levels:
            each.whole = self
        self.used_at = now
        """When it was used last: declared, or its messages taken or waited for."""

    @property
    def left(self) -> int:
        """How many messages are there that are not finished."""
        return sum(each.left for each in self.levels)

    @property
    def accepted(self) -> int:
        """How many messages are not finished, with those that are not forced yet."""
        return sum(each.accepted for each in self.levels)

    @property
    def unacknowledged(self) -> int:
        """How many messages sessions have."""
        return sum(each.unacknowledged for each in self.levels)

    @property
    def is_delivered(self) -> bool:
        """Whether a session has a message of it."""
        return any(each.delivered for each in self.levels)

    def take(self, holder: int, most: int, now: int) -> Handed | None:
        """Give a holder up to ``most`` messages of the highest priority that has any ready; None if none has."""
        for each in self.levels:
            fresh = each.fresh_from
            if runs := each.take(holder, most, now):
                return Handed(each, runs, fresh)
        return None

    def all_offered(self) -> None:
        """Note that all that there is was offered to those who wait for messages."""
        for each in self.levels:
            each.offered = each.store.high_watermark

    def count_held(self) -> int:
        """Return how many messages prepared transactions hold."""
        return sum(each.count_held() for each in self.levels)

    def count_free(self) -> int:
        """Return how many messages could be got if none were due later."""
        return sum(each.count_free() for each in self.levels)

    def count_ready(self, now: int) -> int:
        """Return how many messages could be got now."""
        return sum(each.count_ready(now) for each in self.levels)

    def count_accepted(self, now: int) -> int:
        """Return how many messages could be got now if all that is accepted were forced."""
        return sum(each.count_accepted(now) for each in self.levels)

    @property
    def ready_size(self) -> int:
        """How many bytes the bodies have of what can be got and is measured; 0 where bytes are not bounded."""
        return sum([each.ready_size for each in self.levels])

    def next_due(self) -> int | None:
        """Return the journal time at which a message is due that is due later; None if there is none."""
        return min((due for each in self.levels if (due := each.next_due()) is not None), default=None)

    def release_due(self, now: int) -> None:
        """Make ready what is due by now."""
        for each in self.levels:
            each.release_due(now)

    def lowest_ready(self, now: int) -> LevelDeliveries | None:
        """Return the lowest priority of which a message could be got now; None if there is none."""
        return next((each for each in reversed(self.levels) if each.ready_run(now) is not None), None)
