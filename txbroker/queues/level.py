"""Which messages of one priority of a queue are ready, and which session has which of the others.

All of it is in memory alone. What is finished, held by prepared transactions, or due later is in the fold of groups;
this is what follows from it, and from what was handed out since the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Final

from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.folds.queues import DeclaredQueue
from journal.folds.settlement import Settlement
from journal.formats.offset_set_bytes import MAX_AHEAD
from journal.log.message_store import MessageStore
from journal.offset_set import OffsetSet
from journal.records.group_entries import STOPPED, Retried
from journal.records.queue_entries import QUEUE_GROUP
from txbroker.queues.body_sizes import BodySizes, sizes_in
from txbroker.queues.delivery_ages import DeliveryAges
from txbroker.queues.ready import Ready

MAX_RUNS: Final = 128
"""Most runs of offsets that are handed out together: each is read by itself, 40 µs."""
AHEAD: Final = MAX_AHEAD - 1
"""So far above its lowest message that is not finished others of a queue are delivered."""
ROLLED_BACK: Final = 0
"""The holder of what prepared transactions held that are rolled back, until an attempt is counted for it. It counts as
held until then.
"""
_NONE: Final = OffsetSet()
_NOTHING: Final = Settlement()


class Level:
    """The messages of one priority of a queue. ``holders`` are numbers of sessions.

    Those that are ready are in ``_ready``. Of the others below its frontier, some are finished, some held by prepared
    transactions, some due later, some damaged; sessions have the rest.
    """

    def __init__(
        self, queue: DeclaredQueue, store: MessageStore, groups: GroupsFold, redelivered_below: int, now: int
    ) -> None:
        self.queue, self.store = queue, store
        self.redelivered_below = redelivered_below
        """What lies below may have been delivered before the start."""
        self._groups = groups
        self.offered = store.high_watermark
        """What lies below was offered to those who waited for messages when it came, or nobody waited."""
        self.came = (-1, 0)
        """When the oldest message came, as far as anybody has asked: its offset, and µs since 1970."""
        self.has_expiring = False
        """Whether messages were put into it since the start that expire by themselves."""
        self.delivered: dict[int, OffsetSet] = {}
        self.damaged = OffsetSet()
        self._held = OffsetSet()
        self._later: list[tuple[int, int]] = []
        """(journal time, offset) of those that are due later; a heap. It may have offsets that are not any more."""
        timeout = queue.settings.consumer_timeout
        self.ages = None if timeout is None else DeliveryAges(timeout)
        """When messages were delivered, if the queue has a timeout for consumers."""
        self.on_timed: Callable[[Any], object] = _nothing
        """Called when deliveries are late at a later time than those before."""
        self.look_again()
        self._ready = self._begun(now)

    def _begun(self, now: int) -> Ready:
        """Return what is ready at the start: all that lies above what is not, and some of the rest."""
        returned, later, position = OffsetSet(), OffsetSet(), self.position
        for each in self._kept.unfinished.values():
            if each.due > now:
                later.add(each.offset)
                self._wait(each.offset, each.due, now)
        frontier = max(position, self.finished.end, self._held.end, later.end)
        returned.add_range(position, frontier)
        for others in (self.finished, self._held, later):
            returned.difference_update(others)
        bounded = self.queue.settings.max_length_bytes is not None
        return Ready(frontier, returned, BodySizes(position) if bounded else None)

    # -- what there is -----------------------------------------------------------------------------

    @property
    def _group(self) -> Group:
        return self._groups.find(QUEUE_GROUP)

    @property
    def position(self) -> int:
        """The lowest offset that is not finished."""
        return self._group.position(self.store.number) or 0

    @property
    def _kept(self) -> Settlement:
        return self._group.settlements.get(self.store.number) or _NOTHING

    @property
    def finished(self) -> OffsetSet:
        """The finished offsets above the position."""
        return self._kept.finished

    def attempts_of(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return how often messages of a run were returned, of those that were."""
        return [
            (each.offset, each.attempts) for each in self._kept.details_within(first, end) if each.attempts
        ]

    def attempts(self, offset: int) -> int:
        """Return how often a message was returned."""
        details = self._kept.unfinished.get(offset)
        return 0 if details is None else details.attempts

    def _due(self, offset: int) -> int:
        """Return when a message is due; 0 for now."""
        details = self._kept.unfinished.get(offset)
        return 0 if details is None else details.due

    @property
    def fresh_from(self) -> int:
        """A message that is handed out now may have been handed out before if its offset is below this."""
        return max(self._ready.frontier, self.redelivered_below)

    def has(self, holder: int, offsets: OffsetSet) -> int | None:
        """Return the lowest of these offsets that the holder does not have; None if it has all."""
        lacking = offsets.copy()
        lacking.difference_update(self.delivered.get(holder, _NONE))
        return lacking.first if lacking else None

    def forgive(self, offsets: OffsetSet, retried: Iterable[Retried]) -> None:
        """Take out of these offsets those that are finished already, and those of which that attempt is counted: to say
        so again changes nothing. That one is given up is new unless it is known.
        """
        offsets.difference_update(self.finished)
        offsets.discard_below(self.position)
        for each in retried:
            known = self._kept.unfinished.get(each.offset)
            if known is not None and known.attempts > each.attempts and (known.is_dead or not each.dead):
                offsets.discard(each.offset)

    def some_of(self, holder: int, offsets: OffsetSet) -> OffsetSet:
        """Return those of these offsets that a holder has."""
        return self.delivered.get(holder, _NONE).shared(offsets)

    def still_has(self, holder: int, first: int, end: int) -> tuple[int, int]:
        """Return the first run, (first, end), of those of a run of messages that a holder was given and has not lost;
        at its end if there is none.
        """
        if self.ages is None:
            return first, end  # nobody loses any
        kept = self.delivered.get(holder, _NONE).within(first, end)
        return (kept.first, kept.missing_from(kept.first)) if kept else (end, end)

    def lowest(self, holder: int, most: int) -> OffsetSet:
        """Return the lowest offsets of those that a holder has, so many at most."""
        return first_of(self.delivered.get(holder, _NONE), most)

    @property
    def parked(self) -> int:
        """Of how many messages something is known: how often they were returned, or when they are due."""
        return len(self._kept.unfinished)

    def count_held(self) -> int:
        """Return how many messages prepared transactions hold."""
        return len(self._held)

    def ready_run(self, now: int) -> tuple[int, int] | None:
        """Return the next run of messages that could be got now, which stay where they are; None if there is none."""
        self.release_due(now)
        returned = self._ready.returned
        if returned:
            first = returned.first
            return first, returned.missing_from(first)
        first, last = self._ready.frontier, min(self.store.high_watermark, self.position + AHEAD)
        return (first, last) if first < last else None

    @property
    def may_expire(self) -> bool:
        """Whether there may be messages that expire. Of those from before the start it is not known."""
        return self.queue.settings.message_ttl is not None or self.may_have_expiring

    @property
    def may_have_expiring(self) -> bool:
        """Whether there may be messages that expire by themselves. None does that is to wait at an exchange."""
        return not self.queue.has_waiting and (self.has_expiring or self.position < self.redelivered_below)

    @property
    def unacknowledged(self) -> int:
        """How many messages sessions have."""
        return sum(len(each) for holder, each in self.delivered.items() if holder != ROLLED_BACK)

    @property
    def left(self) -> int:
        """How many messages are not finished."""
        return max(0, self.store.high_watermark - self.position - len(self.finished))

    @property
    def accepted(self) -> int:
        """How many messages are not finished, with those that are not forced yet."""
        return self.store.end_offset - self.position - len(self.finished)

    def count_ready(self, now: int) -> int:
        """Return how many messages could be got now."""
        later = sum(1 for each in self._kept.unfinished.values() if each.due > now)
        return max(0, self.count_free() - later)

    def count_free(self) -> int:
        """Return how many messages could be got if none were due later: it does not look at each of these."""
        return max(0, self.left - self.unacknowledged - len(self._held) - len(self.damaged))

    def count_accepted(self, now: int) -> int:
        """Return how many messages could be got now if all that is accepted were forced."""
        return self.count_ready(now) + self.store.end_offset - self.store.high_watermark

    # -- bytes, where they are bounded -------------------------------------------------------------

    @property
    def sizes(self) -> BodySizes | None:
        """The sizes of bodies, where the bytes of the queue are bounded."""
        return self._ready.sizes

    @property
    def measured(self) -> int:
        """Messages below this offset are measured, if the bytes of the queue are bounded."""
        return self.store.end_offset if self._ready.sizes is None else self._ready.sizes.end

    def measure(self, frames: bytes, end: int) -> None:
        """Measure the next messages, below offset ``end``, of which these are frames."""
        self._ready.measured(list(sizes_in(frames, self.measured, end)))

    def pass_over_unmeasured(self, end: int) -> None:
        """Pass over messages that cannot be read, and so not be got."""
        if self._ready.sizes is not None:
            self._ready.sizes.skip(end)

    @property
    def accepted_size(self) -> int:
        """How many bytes the bodies have of what can be got and is measured, with what is not forced yet."""
        return self._ready.size

    @property
    def ready_size(self) -> int:
        """How many bytes the bodies have of what can be got and is measured."""
        sizes = self._ready.sizes
        return 0 if sizes is None else self._ready.size - sizes.sum(self.store.high_watermark, sizes.end)

    @property
    def unmeasured_size(self) -> int:
        """How many bytes the bodies of messages that are not measured have at most."""
        measured = self.measured
        if measured >= self.store.end_offset:
            return 0
        below = sum([each.size for each in self.store.segments if each.end_offset <= measured])
        return self.store.total_bytes - below

    def _is_open(self, offset: int) -> bool:
        return offset >= self.position and offset not in self.finished

    def next_due(self) -> int | None:
        """Return the journal time at which a message is due that is due later; None if there is none."""
        return self._later[0][0] if self._later else None

    # -- what is handed out ------------------------------------------------------------------------

    def take(self, holder: int, most: int, now: int) -> list[tuple[int, int]]:
        """Give a holder up to ``most`` ready messages, those first that were returned; return them as runs of offsets,
        (first, end). It may be nothing.
        """
        self.release_due(now)
        found, taken = self._returned_runs(most), OffsetSet()
        for first, end in found:
            taken.add_range(first, end)
            most -= end - first
        self._ready.remove(taken)
        if taken and self.ages is not None:
            self.ages.forget(taken)
        while most and len(found) < MAX_RUNS and (run := self._next_run(most)) is not None:
            taken.add_range(*run)
            found.append(run)
            most -= run[1] - run[0]
        if found:
            self.delivered.setdefault(holder, OffsetSet()).update(taken)
            self._note_age(taken, now)
        return found

    def _note_age(self, taken: OffsetSet, now: int) -> None:
        if self.ages is not None and self.ages.delivered(taken, now):
            self.ages.forget_below(self.position)
            self.on_timed(self)

    def late(self, now: int) -> dict[int, OffsetSet]:
        """Return by session what it has that was delivered to it too long ago."""
        if self.ages is None:
            return {}
        self.ages.pass_time(now)
        if not self.ages.late:
            return {}
        found = {
            holder: late
            for holder, kept in self.delivered.items()
            if holder != ROLLED_BACK and (late := kept.shared(self.ages.late))
        }
        if not found:
            self.ages.late = OffsetSet()
        return found

    def _returned_runs(self, most: int) -> list[tuple[int, int]]:
        """Return the first runs of those messages that were returned."""
        found: list[tuple[int, int]] = []
        for first, end in self._ready.returned.runs() if self._ready.returned else ():
            end = min(end, first + most)
            found.append((first, end))
            most -= end - first
            if not most or len(found) == MAX_RUNS:
                break
        return found

    def _next_run(self, most: int) -> tuple[int, int] | None:
        """Take the next run of messages that were not handed out yet; None if there is none."""
        first = self._ready.frontier
        last = min(self.store.high_watermark, first + most, self.position + AHEAD)
        if first < self.redelivered_below:
            last = min(last, self.redelivered_below)
        if first >= last:
            return None
        self._ready.advance(last)
        return first, last

    def release_due(self, now: int) -> None:
        """Make ready what is due by now."""
        while self._later and self._later[0][0] <= now:
            _, offset = heappop(self._later)
            if self._is_open(offset) and not self._is_elsewhere(offset) and self._due(offset) <= now:
                self._ready.put(offset, offset + 1)

    def _is_elsewhere(self, offset: int) -> bool:
        return offset in self._held or any(offset in each for each in self.delivered.values())

    # -- what comes back ---------------------------------------------------------------------------

    def give_back(self, holder: int, offsets: OffsetSet) -> None:
        """Make messages ready again that a holder has; others of these are passed over."""
        kept = self.delivered.get(holder)
        if kept is None:
            return
        back = kept.shared(offsets)
        self._let_go(holder, back)
        self._make_ready(back)

    def hand_over(self, holder: int, other: int, offset: int, now: int) -> bool:
        """Give another holder a message that a holder has, as if it were delivered now; return whether that has it."""
        if offset not in self.delivered.get(holder, _NONE):
            return False
        given = range_of(offset, offset + 1)
        self._let_go(holder, given)
        self.delivered.setdefault(other, OffsetSet()).add(offset)
        if self.ages is not None:
            self.ages.forget(given)
            self._note_age(given, now)
        return True

    def settled(self, holder: int, unfinished: Iterable[tuple[int, int]], now: int) -> None:
        """Note that a holder has returned messages, by a record: (offset, when it is due)."""
        for offset, due in unfinished:
            if offset not in self.delivered.get(holder, _NONE):
                continue  # a repetition
            self._let_go(holder, range_of(offset, offset + 1))
            if not self._wait(offset, due, now):
                self._make_ready(range_of(offset, offset + 1))

    def _make_ready(self, offsets: OffsetSet) -> None:
        """Have messages got again."""
        for first, end in offsets.runs():
            self._ready.put(first, end)

    def _wait(self, offset: int, due: int, now: int) -> bool:
        """Return whether a message is due later, and remember that, unless it goes to the dead letters."""
        if now < due < STOPPED:
            heappush(self._later, (due, offset))
        return due > now

    def ended(self, holder: int | None, offsets: OffsetSet) -> None:
        """Note that a record has ended messages that were ready, or that a holder had."""
        if holder is not None:
            self._let_go(holder, offsets)
        elif offsets:
            self._take_out(offsets.first, offsets.end)

    def put_off(self, holder: int, offsets: OffsetSet, until: int) -> None:
        """Take messages from a holder; they are ready at that journal time."""
        self._let_go(holder, offsets)
        for first, end in offsets.runs():
            for offset in range(first, end):
                heappush(self._later, (until, offset))

    def pass_over_ready(self, first: int, end: int) -> None:
        """Note that the first ready messages cannot be read: nobody gets them before the next start."""
        self._take_out(first, end)
        self.damaged.add_range(first, end)

    def _take_out(self, first: int, end: int) -> None:
        """Take a run of messages out of those that are ready."""
        self._ready.remove(range_of(first, end))
        if first == self._ready.frontier:
            self._ready.advance(end)

    def pass_over(self, holder: int, first: int, end: int) -> None:
        """Note that messages which a holder was to get cannot be read: nobody gets them before the next start."""
        damaged = range_of(first, end)
        self._let_go(holder, damaged)
        self.damaged.update(damaged)

    def _let_go(self, holder: int, offsets: OffsetSet) -> None:
        kept = self.delivered.get(holder)
        if kept is not None:
            kept.difference_update(offsets)
            if not kept:
                del self.delivered[holder]
        if holder == ROLLED_BACK:
            self._held.difference_update(offsets)

    def let_go(self, holder: int) -> None:
        """Take from a session what a record of it has finished, or given to a prepared transaction.

        What has been given to one stays held until :meth:`look_again`, though it may be rolled back before that.
        """
        held, finished, position = self._held_now(), self.finished, self.position
        self._held.update(held)
        self._held.difference_update(finished)
        self._held.discard_below(position)
        if (kept := self.delivered.get(holder)) is not None:
            kept.difference_update(finished)
            kept.difference_update(held)
            kept.discard_below(position)
            if not kept:
                del self.delivered[holder]
        self.damaged.difference_update(finished)
        self.damaged.difference_update(held)
        self.damaged.discard_below(position)
        self._ready.settled(finished, held, position)

    def _held_now(self) -> OffsetSet:
        held = self._groups.held(QUEUE_GROUP, self.store.number)
        return _NONE if held is None else held.offsets

    def look_again(self) -> None:
        """Hand to :data:`ROLLED_BACK` what prepared transactions held, and what their outcome has not finished."""
        before, self._held = self._held, self._held_now().copy()
        released = before.copy()
        released.difference_update(self._held)
        released.difference_update(self.finished)
        released.discard_below(self.position)
        if released:
            self.delivered[ROLLED_BACK] = released
            self._held.update(released)


def first_of(offsets: OffsetSet, most: int) -> OffsetSet:
    """Return the lowest of these offsets, so many at most."""
    found, left = OffsetSet(), most
    for first, end in offsets.runs():
        found.add_range(first, min(end, first + left))
        left -= end - first
        if left <= 0:
            break
    return found


def range_of(first: int, end: int) -> OffsetSet:
    """Return the set of the offsets from ``first`` to below ``end``."""
    found = OffsetSet()
    found.add_range(first, end)
    return found


def _nothing(*_: object) -> None:
    """Tell nobody."""
