"""Scheduled messages as their clients know them: what was sent, and what has been heard of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.model.intent_model import NEVER, OPEN, Intent

if TYPE_CHECKING:
    from tests.simulation.model.schedule_model import ScheduleModel


class Clock(IntEnum):
    """The clocks by which messages are due, by their numbers in the protocol."""

    ELAPSED = 1
    WALL = 2


class Envelope(NamedTuple):
    """What a client sends to a log of the schedule: its frame with its checksum, the index of the log, and what is in
    it.
    """

    frame: bytes
    checksum: int
    log: int
    partition: int
    value: bytes
    clock: Clock
    due: int
    message_id: bytes


class Later(Intent):
    """A message that is due later. It happens when it is placed; ``carrier`` is what has sent it."""

    def __init__(self, schedule: ScheduleModel, carrier: Intent, envelope: Envelope) -> None:
        name = f"message {envelope.value[:12]!r} of the schedule"
        super().__init__(name, name, asked={"commit"})
        self.schedule, self.carrier, self.envelope = schedule, carrier, envelope
        self.peak = 0
        """What the wall clock has shown at most, before it was set last."""
        self.settled: int | None = None
        """The most that its clock had shown when it was surely known to the broker; ``settled_at`` is the model's
        time.
        """
        self.settled_at = NEVER
        self.takers: list[Intent] = []
        """Transactions that take it back."""
        self.cancels = self.doubts = 0
        """How often anybody has asked to take it back; and how often without an answer."""

    def happened(self, bases: Mapping[int, int]) -> None:
        """Judge whether it may be in its partition."""
        self.schedule.placed(self)

    @property
    def latest_due(self) -> int:
        """When it is due at the latest."""
        return self.envelope.due

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may have been taken back."""
        return bool(self.doubts) or any(each.asked and each.state == OPEN for each in self.takers)
