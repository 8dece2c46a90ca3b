"""Messages of queues that end without a consumer: they have expired, or are more than their queue may have.

Each is finished by a record, as if it had been acknowledged, or is said to be dead and moved by the one who moves dead
letters (decision 0056).
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.errors import CorruptData, OffsetOutOfRange
from journal.formats.frame import walk
from journal.offset_set import OffsetSet
from journal.records.group_entries import DEAD, Death, Unfinished
from journal.records.queue_entries import Overflow
from journal.schedule.steps import Steps, Work
from txbroker.broker.queues.reading import read
from txbroker.broker.queues.settler import Settler
from txbroker.broker.sessions.session import unheard
from txbroker.errors import RequestRefused, TooManyParked
from txbroker.queues.deliveries import Deliveries, QueueDeliveries, range_of
from txbroker.queues.expiry import NEVER, expired_run, expires_at, may_expire

if TYPE_CHECKING:
    from collections.abc import Callable

    from journal.engine.engine import Engine

ENDED_AT_ONCE: Final = 1 << 16
"""Most messages that one record finishes, and so one turn: 1 ms."""
DEAD_AT_ONCE: Final = 256
"""Most messages that one record says to be dead."""
PIECE: Final = 64 * 1024
"""Bytes of messages that are looked at in one step."""
LATER: Final = 100_000
"""µs after which what could not be ended is tried again: so many wait for being moved that no more may."""


class Removals:
    """Ends messages of queues. A pass looks at all queues in which something may have to end."""

    log = Logger()

    def __init__(self, engine: Engine, deliveries: Deliveries, settler: Settler, max_parked: int) -> None:
        self._engine, self._deliveries, self._settler = engine, deliveries, settler
        self._max_parked = max_parked
        self._line = dict.fromkeys(each.store.number for each in deliveries.all() if each.left)
        """Partitions of queues to be looked at."""
        self._due: list[tuple[int, int]] = []
        """(journal time, partition) of queues of which the first message expires then, or one is ready that was not; a
        heap.
        """
        self._due_of: dict[int, int] = {}
        """The same by partition. What the heap has beside it is not so any more."""
        self._first_known: dict[int, int] = {}
        """The first message, by partition, of queues of which it is known when that expires."""
        self._plain: dict[int, tuple[int, int]] = {}
        """A run of messages, (first, end), of a queue of which none expires by itself, by partition."""
        self.wake: Callable[[], object] = unheard
        """Called when a pass is to be made."""
        self.serve_waiting: Callable[[QueueDeliveries], object] = unheard
        """Called with a queue whose messages those may get first who wait."""
        self.expired = self.dropped = 0
        """How many messages have expired since the start, and how many were more than their queue may have."""

    # -- when --------------------------------------------------------------------------------------

    def look(self, state: QueueDeliveries, is_published: bool = False) -> None:
        """Look at a queue of which the first message may have changed, or that only has new ones (``is_published``)."""
        is_known = is_published and self._knows_first(state)
        if is_too_long(state) or (state.may_expire and not is_known):
            self._line[state.store.number] = None
            self.wake()

    def taken(self, state: QueueDeliveries) -> None:
        """Look at a queue whose first message was taken: the one that is first now may expire earlier."""
        if state.may_have_expiring and (run := state.ready_run(self._engine.now())) is not None:
            first, end = self._plain.get(state.store.number, (0, 0))
            if not first <= run[0] < end:
                self.look(state)

    def _knows_first(self, state: QueueDeliveries) -> bool:
        """Return whether it is known when the first message of a queue expires: of this, or of one before it, if all
        have the queue's time alone.
        """
        known = self._first_known.get(state.store.number)
        if known is None or not state.may_have_expiring:
            return known is not None
        run = state.ready_run(self._engine.now())
        return run is not None and run[0] == known

    def forget(self, partition: int) -> None:
        """Forget a queue that was deleted."""
        self._due_of.pop(partition, None)
        self._plain.pop(partition, None)
        self._first_known.pop(partition, None)

    def next_in(self) -> int | None:
        """Return after how many µs a queue is to be looked at; 0 for soon, None if none is."""
        if self._line:
            return 0
        while self._due and self._due_of.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return max(1, self._due[0][0] - self._engine.now()) if self._due else None

    def run(self) -> Steps:
        """Look at all queues that are to be looked at, each in turn, until nothing is left that has to end now."""
        now = self._engine.now()
        while self._due and self._due[0][0] <= now:
            at, number = heappop(self._due)
            if self._due_of.get(number) == at:
                self._line[number] = None
        while self._line and not self._engine.busy:
            number = next(iter(self._line))
            del self._line[number]
            self._due_of.pop(number, None)
            self._first_known.pop(number, None)
            state = self._deliveries.at(number)
            if state is not None and (yield from self._look(state)):
                self._line[number] = None  # behind the others
            yield None

    def _is_due(self, state: QueueDeliveries, at: int) -> None:
        heappush(self._due, (at, state.store.number))
        self._due_of[state.store.number] = at

    # -- what --------------------------------------------------------------------------------------

    def _look(self, state: QueueDeliveries) -> Generator[Work | None, Any, bool]:
        """End what has to at the head of a queue; return whether there may be more."""
        number, now = state.store.number, self._engine.now()
        self.serve_waiting(state)  # what they get is not too much
        self._line.pop(number, None)  # it is looked at just now
        too_many = excess_of(state, now)
        run = state.ready_run(now)
        if run is not None and too_many > 0:
            return self._end(state, run[0], min(run[1], run[0] + too_many), Death.LENGTH)
        if run is None or not state.may_expire:
            self._note_due(state, NEVER, 0)
            return False
        ttl = state.queue.settings.message_ttl
        try:
            data = yield from read(state.store, run[0], run[1], PIECE)
        except OffsetOutOfRange:
            return False  # a repair or a deletion has moved the start: then it is looked at again
        except (CorruptData, OSError) as error:
            self.log.error(
                "the first message of queue {queue!r} cannot be read, and so does not expire: {error}",
                queue=state.queue.name, error=str(error),
            )  # fmt: skip
            return False
        if number not in self._engine.catalog.stores:
            return False
        again = state.ready_run(now)
        if self._engine.busy or again is None or again[0] != run[0]:
            return True  # others were at it while it was read
        offset_of_wall = self._engine.wall_offset
        if not may_expire(data, None):
            self._plain[number] = run[0], max((offset for _, _, offset, _ in walk(data)), default=run[0]) + 1
        expires = _first_expires_at(data, run[0], ttl) - offset_of_wall
        if expires <= now:
            expired = expired_run(data, run[0], min(run[1], again[1]), ttl, now + offset_of_wall)
            assert expired is not None
            return self._end(state, *expired, Death.EXPIRED)
        self._note_due(state, expires, run[0])
        return False

    def _note_due(self, state: QueueDeliveries, expires: int, first: int) -> None:
        """Note when a queue is to be looked at again: when its ``first`` message ``expires``, in journal time, or when
        one is ready that was returned for later, and may have expired, or be one too many.
        """
        ready = state.next_due()
        at = min(expires, NEVER if ready is None else ready)
        if expires < NEVER - self._engine.wall_offset:
            self._first_known[state.store.number] = first
        if at < NEVER - self._engine.wall_offset:
            self._is_due(state, at)

    def _end(self, state: QueueDeliveries, first: int, end: int, death: Death) -> bool:
        """End ready messages; return whether there may be more."""
        end = min(end, first + self.most_at_once(state))
        if self.end(state, None, first, end, death):
            return True
        self._is_due(state, self._engine.now() + LATER)
        return False

    def most_at_once(self, state: QueueDeliveries) -> int:
        """Return how many messages of a queue one call of :meth:`end` may end."""
        if state.queue.settings.dead_letter_exchange is None:
            return ENDED_AT_ONCE
        return max(1, min(DEAD_AT_ONCE, self._max_parked - state.parked))

    def end(self, state: QueueDeliveries, holder: int | None, first: int, end: int, death: Death) -> bool:
        """End messages of a run that are ready, or that a holder has; return whether they have ended. If not, they are
        ready a little later.
        """
        offsets = range_of(first, end)
        try:
            if state.queue.settings.dead_letter_exchange is None:
                self._settler.finish(state, offsets)
            else:
                self._settler.settle(state, unfinished=self._dead(state, offsets, death))
        except RequestRefused as error:
            if not isinstance(error, TooManyParked):
                self.log.error(
                    "messages {first} to {last} of queue {queue!r} cannot be ended, and it is tried again: {error}",
                    first=first, last=end - 1, queue=state.queue.name, error=str(error),
                )  # fmt: skip
            if holder is not None:
                state.put_off(holder, offsets, self._engine.now() + LATER)
            return False
        state.ended(holder, offsets)
        if death is Death.EXPIRED:
            self.expired += end - first
        else:
            self.dropped += end - first
        return True

    def _dead(self, state: QueueDeliveries, offsets: OffsetSet, death: Death) -> list[Unfinished]:
        failed = self._engine.now() + self._engine.wall_offset
        return [
            Unfinished(offset, state.attempts(offset), DEAD, "", failed, death)
            for first, end in offsets.runs()
            for offset in range(first, end)
        ]


def _first_expires_at(data: bytes, first: int, ttl: int | None) -> int:
    """Return when the message at that offset expires, in µs since 1970."""
    if not may_expire(data, ttl):
        return NEVER
    return next(
        (expires_at(data, position, ttl) for position, _, offset, _ in walk(data) if offset == first), NEVER
    )


def is_too_long(state: QueueDeliveries) -> bool:
    """Return whether a queue may have more messages than it should, and drops the oldest then."""
    settings = state.queue.settings
    most = settings.max_length
    return most is not None and settings.overflow is Overflow.DROP_HEAD and state.left > most


def excess_of(state: QueueDeliveries, now: int) -> int:
    """Return how many messages more can be got than a queue should have that drops the oldest; it may be negative."""
    most = state.queue.settings.max_length
    return state.count_ready(now) - most if most is not None and is_too_long(state) else 0
