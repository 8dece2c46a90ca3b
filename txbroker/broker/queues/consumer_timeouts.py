"""Deliveries that nobody has acknowledged in time, in queues with a timeout for consumers (decision 0062).

They are taken from the session that has them, and returned with an attempt counted; over AMQP their channel is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from journal.offset_set import OffsetSet
from journal.schedule.steps import Steps
from journal.words import count_text
from txbroker.broker.queues.returns import RETURNED_AT_ONCE, Returns
from txbroker.broker.sessions.session import Session, unheard
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.level import first_of
from txbroker.queues.queue_deliveries import LevelDeliveries

if TYPE_CHECKING:
    from journal.engine.engine import Engine

LATE: Final = "it was not acknowledged in time"


class ConsumerTimeouts:
    """Returns such messages. A pass looks at the priorities of queues of which a generation of deliveries is late."""

    log = Logger()

    def __init__(self, engine: Engine, deliveries: Deliveries, returns: Returns) -> None:
        self._engine, self._deliveries, self._returns = engine, deliveries, returns
        self._due: list[tuple[int, int]] = []
        """(journal time, partition) of the oldest generations; a heap."""
        self._due_of: dict[int, int] = {}
        """The same by partition."""
        self._line: dict[int, None] = {}
        """Partitions of which there may be more that is late."""
        self._noted: dict[int, set[int]] = {}
        """Sessions whose late deliveries are being returned, by partition: operators know."""
        self.remind: Callable[[], object] = unheard
        """Called when one is due earlier than it was."""
        self.session_of: Callable[[int], Session | None] = unheard
        """Returns the session of a number, None if it has ended."""
        self.timed_out = 0
        """How many deliveries were late since the start."""
        deliveries.on_timed = self._timed

    def _timed(self, state: LevelDeliveries) -> None:
        """Note that a generation of deliveries has begun."""
        number = state.store.number
        due = None if state.ages is None else state.ages.next_due()
        if due is None or number in self._due_of:
            return
        self._due_of[number] = due
        heappush(self._due, (due, number))
        if self._due[0][1] == number:
            self.remind()

    def next_in(self) -> int | None:
        """Return after how many µs a queue is to be looked at; 0 for soon, None if none is."""
        if self._line:
            return 0
        return max(1, self._due[0][0] - self._engine.now()) if self._due else None

    def run(self) -> Steps:
        """Return what is late, some of each priority of a queue in turn, until nothing is left."""
        self._collect_due()
        while self._line and not self._engine.busy and not self._returns.is_stopping:
            number = next(iter(self._line))
            del self._line[number]
            state = self._deliveries.at(number)
            if state is None:
                self._noted.pop(number, None)  # the queue was deleted
                continue
            if self._return_some(state):
                self._line[number] = None  # behind the others
            else:
                self._timed(state)
            yield None
            self._collect_due()

    def _collect_due(self) -> None:
        now = self._engine.now()
        while self._due and self._due[0][0] <= now:
            _, number = heappop(self._due)
            del self._due_of[number]
            self._line[number] = None

    def _return_some(self, state: LevelDeliveries) -> bool:
        """Return some of what is late; return whether there may be more."""
        late, number = state.late(self._engine.now()), state.store.number
        if not late:
            self._noted.pop(number, None)
            return False
        for holder, offsets in late.items():
            self._note(state, holder, len(offsets))
            left = offsets.copy()
            left.difference_update(self._told(state, holder, offsets))
            if left:
                some = first_of(left, RETURNED_AT_ONCE)
                self.timed_out += len(some)
                self._returns.count(state, holder, some, LATE)
                break  # what that serves may have changed what others have
        return True

    def _told(self, state: LevelDeliveries, holder: int, offsets: OffsetSet) -> OffsetSet:
        """Let the one who speaks for a session end what has these deliveries; return those which that returns then."""
        session, ages = self.session_of(holder), state.ages
        assert ages is not None, "the queue has a timeout"
        if session is None:
            return OffsetSet()
        found = session.on_late(state.store.number, offsets, ages.timeout)
        self.timed_out += len(found)
        ages.late.difference_update(found)
        return found

    def _note(self, state: LevelDeliveries, holder: int, count: int) -> None:
        """Tell operators once of what a session has not acknowledged, however many turns it takes to return it."""
        noted = self._noted.setdefault(state.store.number, set())
        if holder in noted:
            return
        noted.add(holder)
        session, timeout = self.session_of(holder), state.queue.settings.consumer_timeout or 0
        self.log.warn(
            "{client!r} ({peer}) has not acknowledged {count} of queue {queue!r} within {seconds} s "
            "(consumer_timeout): they are returned",
            client="" if session is None else session.client, peer="" if session is None else session.peer,
            count=count_text(count, "message"), queue=state.queue.name, seconds=timeout / 1e6,
        )  # fmt: skip
