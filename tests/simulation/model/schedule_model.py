"""The model of the schedule: a message comes once and not before its time, or never if it was taken back."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.model.intent_model import DONE, OPEN, VOID, Intent
from tests.simulation.model.log_model import require
from tests.simulation.model.model import Model
from tests.simulation.model.schedule_clock_model import ScheduleClock
from tests.simulation.model.scheduled_message_model import Clock, Envelope, Later
from tests.simulation.model.topic_model import Topic, TopicModel


class ScheduleModel:
    """All scheduled messages. ``read`` is that of :class:`ScheduleClock`."""

    def __init__(self, model: Model, topics: TopicModel, read: Callable[[], tuple[int, int]]) -> None:
        self.model, self.topics = model, topics
        self.clock = ScheduleClock(read)
        self.messages: list[Later] = []
        self.logs: list[int] = []
        self.all_were_due = False
        """Whether all that anybody has scheduled was due long ago."""
        self._highest = 0
        """The most that the wall clock has shown."""

    def told(self, logs: list[int]) -> None:
        """Somebody was told of the logs of the schedule."""
        require(self.logs in ([], logs), f"the logs of the schedule stay {self.logs}", logs)
        self.logs = logs

    def sent(self, carrier: Intent, envelope: Envelope) -> Later:
        """Somebody is about to send this."""
        later = Later(self, carrier, envelope)
        carrier.vague = True
        self.model.put_into(carrier, self.logs[envelope.log], [envelope.frame])
        self.model.put_into(later, envelope.partition, [envelope.value])
        self.messages.append(later)
        return later

    def offset(self, later: Later) -> int | None:
        """Return where it is in its log, if anybody knows."""
        place = self.model.seen.places.get(later.envelope.frame)
        return None if place is None else place[1]

    # -- time ------------------------------------------------------------------------------------------

    def latest(self, later: Later) -> int:
        """Return the latest time by its clock that the broker may have seen."""
        if later.envelope.clock is Clock.ELAPSED:
            return self.clock.most()
        return max(later.peak, self.clock.read()[1] if self.clock.peak is None else self.clock.peak)

    def may_be_due(self, later: Later) -> bool:
        """Return whether it may be due."""
        return later.envelope.due <= self.latest(later)

    def moves_wall(self) -> None:
        """The wall clock is about to be set."""
        self._highest = max(self._highest, self.clock.read()[1])
        for later in self.messages:
            later.peak = self.latest(later) if later.envelope.clock is Clock.WALL else 0

    def at_rest(self, has_moved: bool = True) -> None:
        """All that was sent is known to the broker, and what is due is placed; unless what came to exchanges has not
        moved into the schedule yet (``has_moved``).
        """
        for later in self.messages:
            if later.settled is None and later.carrier.state == DONE and has_moved:
                wall = max(self._highest, self.clock.read()[1])
                later.settled = self.clock.most() if later.envelope.clock is Clock.ELAPSED else wall
                later.settled_at = self.model.now

    # -- what becomes of them ----------------------------------------------------------------------------

    def placed(self, later: Later) -> None:
        """It is in its partition."""
        due, latest = later.envelope.due, self.latest(later)
        require(due <= latest, f"{later.name} is due at {due}, by {later.envelope.clock.name}", latest)
        taken = [each.name for each in later.takers if each.state == DONE]
        require(not taken, f"{later.name} was taken back by {taken}", "it is there")
        self.model.done(later.carrier)

    def taken_back(self, later: Later) -> None:
        """It is known to be taken back."""
        require(later.cancels or later.takers, f"nobody takes {later.name} back", "it was")
        require(later.state != DONE, f"{later.name} is sent", "it was taken back")
        later.state, later.ended_at = VOID, min(later.ended_at, self.model.now)

    def settle(self) -> None:
        """All has been read: what transactions have taken back never comes, and is taken back by one."""
        for later in self.messages:
            takers = [each.name for each in later.takers if each.state == DONE]
            require(len(takers) < 2, f"{later.name} is taken back once", takers)
            if takers:
                self.taken_back(later)

    def deleted(self, topic: Topic, since: int) -> None:
        """A topic was deleted by who asked at ``since``, without what is scheduled for it."""
        waits = [
            each.name for each in self._of(topic) if each.settled_at < since and not self.may_be_over(each)
        ]
        require(not waits, f"topic {topic.name} is not deleted: {waits} are scheduled", "it is")

    def kept(self, topic: Topic, since: int) -> None:
        """A topic was not deleted, as who asked at ``since`` was told, because something is scheduled for it."""
        waits = [each for each in self._of(topic) if each.ended_at > since and each.carrier.state != VOID]
        require(
            waits and not self.all_were_due,
            f"nothing is scheduled for topic {topic.name}",
            "it is not deleted",
        )

    def may_be_over(self, later: Later) -> bool:
        """Return whether it may not wait any more."""
        taken = later.state != OPEN or later.is_in_doubt or any(each.state == DONE for each in later.takers)
        return taken or self.may_be_due(later) or self.may_be_dropped(later)

    def may_be_dropped(self, later: Later) -> bool:
        """Return whether its topic may be deleted, and it with that."""
        home = self.topics.homes.get(later.envelope.partition)
        return home is not None and home.deleted is not None

    def _of(self, topic: Topic) -> list[Later]:
        return [each for each in self.messages if each.envelope.partition in (topic.partitions or ())]
