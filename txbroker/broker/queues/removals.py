"""Messages of queues that end without a consumer: they have expired, or are more than their queue may have.

Each is finished by a record, as if it had been acknowledged, or is said to be dead and moved by the one who moves dead
letters (decision 0056).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from twisted.logger import Logger

from journal.errors import CorruptSegment, OffsetOutOfRange
from journal.formats.frame import walk
from journal.offset_set import OffsetSet
from journal.records.group_entries import DEAD, Death, Unfinished
from journal.records.queue_entries import Overflow
from journal.schedule.steps import Steps, Work
from txbroker.broker.queues.reading import measure, read
from txbroker.broker.queues.settler import Settler
from txbroker.broker.sessions.session import unheard
from txbroker.errors import RequestRefused, TooManyParked
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.expiry import NEVER, expired_run, expires_at, may_expire
from txbroker.queues.level import range_of
from txbroker.queues.measurement import catch_up
from txbroker.queues.queue_deliveries import LevelDeliveries, QueueDeliveries

if TYPE_CHECKING:
    from collections.abc import Callable

    from journal.engine.engine import Engine

ENDED_AT_ONCE: Final = 1 << 16
"""Most messages that one record finishes, and so one turn: 1 ms."""
DEAD_AT_ONCE: Final = 256
"""Most messages that one record says to be dead."""
PIECE: Final = 64 * 1024
"""Bytes of messages that are looked at in one step."""
AGAIN: Final = 50_000
"""µs after which a queue is looked at again in which nothing is known to expire earlier."""
SOON: Final = 1_000_000
"""µs after which what could not be read or ended is tried again."""


class Removals:
    """Ends messages of queues. A pass looks at all queues in which something may have to end."""

    log = Logger()

    def __init__(self, engine: Engine, deliveries: Deliveries, settler: Settler, max_parked: int) -> None:
        self._engine, self._deliveries, self._settler = engine, deliveries, settler
        self._max_parked = max_parked
        self._line = dict.fromkeys(each.store.number for each in deliveries.all() if each.left)
        """Partitions of queues to be looked at."""
        self._due: list[tuple[int, int]] = []
        """(journal time, partition) of queues of which the first message expires then; a heap."""
        self._due_of: dict[int, int] = {}
        """The same by partition. What the heap has beside it is not so any more."""
        self._first_known: set[int] = set()
        """Partitions of queues of which it is known when the first message expires."""
        self._looked: dict[int, int] = {}
        """When a queue was looked at last, by partition; journal time."""
        self._unreadable: dict[int, int] = {}
        """The first message of queues, by partition, that cannot be read, as the log says already."""
        self.wake: Callable[[], object] = unheard
        """Called when a pass is to be made."""
        self.serve_waiting: Callable[[LevelDeliveries], object] = unheard
        """Called with a queue whose messages those may get first who wait."""
        self.remind: Callable[[], object] = unheard
        """Called when one is due earlier than it was."""
        self.expired = self.dropped = 0
        """How many messages have expired since the start, and how many were more than their queue may have."""

    # -- when --------------------------------------------------------------------------------------

    def look(self, *levels: LevelDeliveries, is_published: bool = False) -> None:
        """Look at these priorities of a queue, of which the first message may have changed, or that only have new ones
        (``is_published``).

        That costs 0.1 ms. So one of which a message may expire is looked at again after a while; nobody gets an expired
        message before.
        """
        to_look = self._unmeasured(levels)
        if is_too_long(levels[0].whole):
            to_look.append(levels[0].store.number)
        for state in levels:
            number = state.store.number
            if number in to_look or not state.may_expire or (is_published and number in self._first_known):
                continue
            again = self._looked.get(number, -AGAIN) + AGAIN
            if self._engine.now() >= again:
                to_look.append(number)
            elif again < self._due_of.get(number, NEVER):
                self._is_due(state, again)
                self.remind()
        if to_look:
            self._line.update(dict.fromkeys(to_look))
            self.wake()

    def _unmeasured(self, levels: Sequence[LevelDeliveries]) -> list[int]:
        """Measure messages of these priorities, if the bytes of their queue are bounded, while they are in memory;
        return the partitions of those in which that takes longer.
        """
        if levels[0].queue.settings.max_length_bytes is None:
            return []
        for each in levels:
            due, number = each.next_due(), each.store.number
            if due is not None and due < self._due_of.get(number, NEVER):
                self._is_due(each, due)  # what is returned later may be too much then
                self.remind()
        return [each.store.number for each in levels if not catch_up(each, each.store.high_watermark)]

    def measure(self, state: LevelDeliveries) -> None:
        """Have the messages of a priority measured."""
        self._line[state.store.number] = None
        self.wake()

    def taken(self, state: LevelDeliveries) -> None:
        """Look at a queue whose first message was taken: the one that is first now may expire earlier."""
        self._first_known.discard(state.store.number)
        if state.may_have_expiring:
            self.look(state)

    def next_in(self) -> int | None:
        """Return after how many µs a queue is to be looked at; 0 for soon, None if none is."""
        if self._line:
            return 0
        while self._due and self._due_of.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return max(1, self._due[0][0] - self._engine.now()) if self._due else None

    def run(self) -> Steps:
        """Look at all queues that are to be looked at, each in turn, until nothing is left that has to end now."""
        self._collect_due()
        while self._line and not self._engine.busy:
            number = next(iter(self._line))
            del self._line[number]
            state = self._deliveries.at(number)
            if state is None:
                self.forget(number)
                continue
            try:
                has_more = yield from self._look(state)
            except BaseException:
                self._line[number] = None  # the next pass looks at it again
                raise
            self._looked[number] = self._engine.now()
            if has_more:
                self._line[number] = None  # behind the others
            yield None
            self._collect_due()

    def _collect_due(self) -> None:
        now = self._engine.now()
        while self._due and self._due[0][0] <= now:
            at, number = heappop(self._due)
            if self._due_of.get(number) == at:
                self._line[number] = None

    def forget(self, number: int) -> None:
        """Forget a queue that was deleted."""
        for known in (self._line, self._due_of, self._looked, self._unreadable):
            known.pop(number, None)
        self._first_known.discard(number)

    def _is_due(self, state: LevelDeliveries, at: int | None) -> None:
        """Look at a queue again at that time, and not earlier; or (None) when something happens to it."""
        number = state.store.number
        if at is None:
            self._due_of.pop(number, None)
        elif self._due_of.get(number) != at:
            heappush(self._due, (at, number))
            self._due_of[number] = at
            if len(self._due) > 2 * len(self._due_of) + 64:
                self._due = [(at, each) for each, at in self._due_of.items()]
                heapify(self._due)

    # -- what --------------------------------------------------------------------------------------

    def _look(self, state: LevelDeliveries) -> Generator[Work | None, Any, bool]:
        """End what has to at the head of a queue, and note when to look again; return whether there may be more."""
        if not (yield from measure(state)):
            self._is_due(state, self._engine.now() + SOON)
            return False
        now = self._engine.now()
        self.serve_waiting(state)  # what they get is not too much
        self._line.pop(state.store.number, None)  # it is looked at just now
        self._first_known.discard(state.store.number)
        run, too_many = state.ready_run(now), excess_of(state.whole, now)
        lowest = state.whole.lowest_ready(now) if too_many is not None else None
        if lowest is not None and lowest is not state:
            self._line[lowest.store.number] = None  # those of the lowest priority go first
        elif run is not None and lowest is not None and too_many is not None:
            return self._end(state, run[0], run[0] + too_many.of(state, run), Death.LENGTH)
        whole = state.whole
        whole.release_due(now)
        # What is returned later may expire then, or be too much, of whichever priority it is.
        at = whole.next_due() if is_too_long(whole) else state.next_due()
        if run is not None and run[0] >= state.offered and state.may_expire:
            at = now + AGAIN  # others wait for it, and get it before
        elif run is not None and state.may_expire:
            run = run[0], min(run[1], state.offered)
            end, expires = yield from self._expired(state, run, now)
            if end > run[0]:
                return self._end(state, run[0], end, Death.EXPIRED)
            if expires <= now:
                return True
            if expires < NEVER:
                self._first_known.add(state.store.number)
            at = expires if at is None else min(expires, at)
        self._is_due(state, None if at is None or at >= NEVER else at)
        return False

    def _expired(
        self, state: LevelDeliveries, run: tuple[int, int], now: int
    ) -> Generator[Work | None, Any, tuple[int, int]]:
        """Return the offset behind the expired messages at the head of a run that is ready; and if the first has not
        expired, the journal time at which it does, or at which to look again: ``now``, if the queue has changed since.
        """
        first, number, ttl = run[0], state.store.number, state.queue.settings.message_ttl
        try:
            data = yield from read(state.store, first, run[1], PIECE)
        except OffsetOutOfRange:
            return first, now + SOON  # a repair or a deletion has moved the start
        except CorruptSegment as error:
            self.damaged(state, None, first, min(run[1], max(first, error.last_offset) + 1), error)
            return first, now
        except OSError as error:
            if self._unreadable.get(number) != first:
                self._unreadable[number] = first
                self.log.error(
                    "the first message of queue {queue!r} cannot be read, and it is tried again: {error}",
                    queue=state.queue.name, error=str(error),
                )  # fmt: skip
            return first, now + SOON
        again = state.ready_run(now)
        if self._engine.busy or again is None or again[0] != first:
            return first, now  # others were at it while it was read
        wall = self._engine.wall_offset
        expired = expired_run(data, first, min(run[1], again[1]), ttl, now + wall)
        if expired is not None and expired[0] == first:
            return expired[1], now
        if not may_expire(data, ttl):
            return first, NEVER
        head = next(position for position, _, offset, count in walk(data) if offset + count > first)
        at = expires_at(data, head, ttl)
        return first, NEVER if at >= NEVER else max(at - wall, now + 1)

    def _end(self, state: LevelDeliveries, first: int, end: int, death: Death) -> bool:
        """End ready messages; return whether there may be more."""
        end = min(end, first + self.most_at_once(state))
        if first < end and self.end(state, None, first, end, death):
            return True
        self._is_due(state, self._engine.now() + SOON)
        return False

    def most_at_once(self, state: LevelDeliveries) -> int:
        """Return how many messages of a queue one call of :meth:`end` may end; 0 if so many wait for being moved that
        no more may.
        """
        if state.queue.settings.dead_letter_exchange is None:
            return ENDED_AT_ONCE
        return max(0, min(DEAD_AT_ONCE, self._max_parked - state.parked))

    def end(self, state: LevelDeliveries, holder: int | None, first: int, end: int, death: Death) -> bool:
        """End messages of a run that are ready, or that a holder has; return whether they have ended."""
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
            return False
        state.ended(holder, offsets)
        if death is Death.EXPIRED:
            self.expired += end - first
        else:
            self.dropped += end - first
        return True

    def end_expired(self, state: LevelDeliveries, holder: int, first: int, end: int) -> int:
        """End expired messages that a holder has, as many as one turn may; return the offset behind those that it has
        no more. If none can be ended now, all are ready a little later.
        """
        most = self.most_at_once(state)
        if most and self.end(state, holder, first, min(end, first + most), Death.EXPIRED):
            return min(end, first + most)
        state.put_off(holder, range_of(first, end), self._engine.now() + SOON)
        self._is_due(state, self._engine.now() + SOON)
        self.remind()
        return end

    def damaged(
        self, state: LevelDeliveries, holder: int | None, first: int, end: int, error: CorruptSegment
    ) -> None:
        """Pass damaged messages over that are ready, or that a holder has; those that a repair found lost are
        finished.
        """
        if holder is None:
            state.pass_over_ready(first, end)
        else:
            state.pass_over(holder, first, end)
        if error.lost and not self._engine.busy:
            self._settler.finish(state, range_of(first, end))
        self.log.error(
            "messages {first} to {last} of queue {queue!r} cannot be delivered: {error}",
            first=first, last=end - 1, queue=state.queue.name, error=str(error),
        )  # fmt: skip

    def _dead(self, state: LevelDeliveries, offsets: OffsetSet, death: Death) -> list[Unfinished]:
        failed = self._engine.now() + self._engine.wall_offset
        return [
            Unfinished(offset, state.attempts(offset), DEAD, "", failed, death)
            for first, end in offsets.runs()
            for offset in range(first, end)
        ]


class Excess(NamedTuple):
    """How many messages that can be got, and bytes of their bodies, are more than a queue should have: one or both."""

    messages: int
    size: int

    def of(self, state: LevelDeliveries, run: tuple[int, int]) -> int:
        """Return how many messages of a run that is ready have to go for it, from its first one on."""
        first, end = run
        by_size = 0 if state.sizes is None else state.sizes.count_for(first, end, self.size)
        return min(end - first, max(self.messages, by_size))


def is_too_long(queue: QueueDeliveries) -> bool:
    """Return whether a queue may have more than it should, and drops the oldest then."""
    settings = queue.queue.settings
    count, size = settings.max_length, settings.max_length_bytes
    if settings.overflow is not Overflow.DROP_HEAD:
        return False
    return (count is not None and queue.left > count) or (size is not None and queue.ready_size > size)


def excess_of(queue: QueueDeliveries, now: int) -> Excess | None:
    """Return what can be got and is more than a queue should have that drops the oldest; None if nothing is."""
    settings = queue.queue.settings
    count, size = settings.max_length, settings.max_length_bytes
    if not is_too_long(queue):
        return None
    found = Excess(
        0 if count is None else queue.count_ready(now) - count, 0 if size is None else queue.ready_size - size
    )
    return found if max(found) > 0 else None
