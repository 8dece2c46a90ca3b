"""Messages in queues as their clients know them: who has each, what may have finished it, and when it may come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tests.simulation.model.intent_model import DONE, OPEN, VOID, Intent
from tests.simulation.model.schedule_model import ScheduleModel
from tests.simulation.model.scheduled_message_model import Clock, Envelope, Later


class Taker(Protocol):
    """A client to which messages are delivered."""

    def goes_on(self, connection: Any) -> bool:
        """Return whether it has a connection still, and nobody has ended that or its channel."""


class Holder(NamedTuple):
    """Who has a message, and by which of its connections."""

    taker: Taker
    connection: Any


@dataclass(eq=False)
class Copy:
    """A message in one of its queues. ``finishers`` are what acknowledges or rejects it: transactions, or what was said
    outside of one.
    """

    intent: Intent
    queue: str
    body: bytes
    said: tuple[str, str, int | None]
    """The exchange, the routing key, and the header ``x-delay`` that readers are to find."""
    holder: Holder | None = None
    was_delivered: bool = False
    finishers: list[Intent] = field(default_factory=list)
    death: tuple[Intent, Intent] | None = None
    """Of what was rejected: that it is, and that it is a dead letter, in this order. Both finish it."""
    drained: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether it surely never comes again."""
        return any(each.state == DONE for each in self.finishers)

    @property
    def may_be_finished(self) -> bool:
        """Whether somebody has asked for that."""
        return any(each.asked and each.state != VOID for each in self.finishers)

    @property
    def may_be_counted(self) -> bool:
        """Whether its queue may still count it: it is not finished, or it is dead, and perhaps no dead letter yet."""
        return not self.is_finished or (self.death is not None and self.death[1].state == OPEN)


class Waiting(Later):
    """A message that waits at a delayed exchange for ``delay`` µs, counted from when the broker has it."""

    def __init__(
        self, schedule: ScheduleModel, carrier: Intent, body: bytes, delay: int, places: Mapping[int, bytes]
    ) -> None:
        [partition, *_] = places
        due = schedule.clock.least() + delay
        unseen = b"envelope of " + body  # the broker's own, of which nobody knows the bytes
        envelope = Envelope(unseen, 0, 0, partition, places[partition], Clock.ELAPSED, due, b"")
        super().__init__(schedule, carrier, envelope)
        self.delay = delay

    @property
    def latest_due(self) -> int:
        """When it is due at the latest: it is scheduled by the time at which it was known to be."""
        assert self.settled is not None
        return self.settled + self.delay
