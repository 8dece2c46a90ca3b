"""What is new in the logs of a schedule goes into the timetables; what is lost, or for a deleted topic, is over."""

from __future__ import annotations

from collections.abc import Callable, Generator, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from journal.errors import CorruptSegment
from journal.formats.envelope import MINUTE, Clock, envelopes, id_of
from journal.formats.frame import walk
from journal.log.message_store import MessageStore
from journal.records.record import Due
from journal.schedule.steps import Steps, Work, run_all

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.folds.schedule import ScheduleFold

SEEN_AT_ONCE: Final = 64 << 10
"""Bytes of new messages that are looked at in one part, about 1 ms."""
PIECE_BYTES: Final = 64 << 10
"""Bytes that are taken from memory at once: 5 µs."""
UNSEEN: Final = 256 << 10
"""Bytes of new messages that are looked at before a topic is deleted."""


class Scheduled(Protocol):
    """What is needed of a schedule; ``gone`` and ``on_damage`` are as it says."""

    engine: Engine
    fold: ScheduleFold
    gone: int
    on_damage: Callable[[int, Exception], object]

    @property
    def stores(self) -> list[MessageStore]:
        """Return the logs."""

    def now(self, clock: Clock) -> int:
        """Return the time by a clock, in µs."""

    def has(self, partition: int) -> bool:
        """Return whether there is a partition of that number, or an exchange at that address."""


class Seeing:
    """Looks at the logs of a schedule."""

    def __init__(self, schedule: Scheduled) -> None:
        self._schedule = schedule
        self._engine, self._fold = schedule.engine, schedule.fold
        self._again_at = 0
        """When what could not be read of the logs is looked at again."""
        self._dropped: set[int] = set()
        """Partitions and exchanges that are gone, whose messages have been dropped."""

    def see(self) -> Steps:
        """Put the messages that are new in the logs into the timetables."""
        for store in self._schedule.stores:
            log = self._fold.logs[store.index]
            log.seen = max(log.seen, store.start_offset)
            if log.damaged and self._engine.now() >= self._again_at:
                yield from self._see_damaged(store)
            while (start := log.seen_to) < store.high_watermark:
                data = yield from self._piece(store, start)
                if isinstance(data, Exception):
                    end = self._pass_over(store, data, start)
                    if end == start:
                        break
                    log.move_to(end)
                else:
                    log.move_to(self._take(store, data, range(start, store.high_watermark)))
                yield None

    def _see_damaged(self, store: MessageStore) -> Steps:
        """Look again at messages that could not be read: a repair may have given them up, or the disk be well again."""
        log, left = self._fold.logs[store.index], list[range]()
        self._again_at = self._engine.now() + MINUTE
        for damaged in log.damaged:
            start = damaged.start
            while start < damaged.stop:
                data = yield from self._piece(store, start)
                if not isinstance(data, Exception):
                    start = self._take(store, data, range(start, damaged.stop))
                elif isinstance(data, CorruptSegment) and data.lost and not self._engine.busy:
                    self._give_up(store, range(start, min(data.last_offset + 1, damaged.stop)))
                    start = data.last_offset + 1
                else:
                    self._schedule.on_damage(id_of(store.index, start), data)
                    left.append(range(start, damaged.stop))
                    break
                yield None
        log.mend(left)

    def _piece(self, store: MessageStore, offset: int) -> Generator[Work | None, Any, bytes | Exception]:
        """Return messages of a log from an offset on, or why they cannot be read."""
        data: bytes | Exception | None = store.at_hand(offset, SEEN_AT_ONCE)
        if data is None:
            plan = store.plan_read(offset, SEEN_AT_ONCE)
            [(_, _, data)] = yield partial(run_all, [(store.index, offset, plan)])
        assert data is not None
        return data

    def drop_gone(self) -> Steps:
        """Let messages be over whose partition or exchange was deleted, but for those that are held."""
        unknown = self._fold.targets.keys() - self._engine.catalog.stores.keys() - self._dropped
        gone = {each for each in unknown if not self._schedule.has(each)}
        for store in self._schedule.stores if gone else ():
            log, offset = self._fold.logs[store.index], 0
            while True:
                offset = log.over.missing_from(max(offset, log.begins, store.start_offset))
                if offset >= min(log.seen, store.high_watermark):
                    break
                data = yield from self._piece(store, offset)
                if isinstance(data, CorruptSegment):
                    offset = data.last_offset + 1
                    continue
                if isinstance(data, Exception):
                    return  # the disk does not answer: it is tried again with the next run
                if self._engine.busy:
                    return
                offset = self._drop(store, data, offset, gone)
                yield None
        self._dropped |= gone

    def _drop(self, store: MessageStore, data: bytes, first: int, gone: Set[int]) -> int:
        """Let those of a run of frames, from an offset on, be over that are for these partitions; return its end."""
        fold, log = self._fold, self._fold.logs[store.index]
        found = [
            (number, envelope.partition)
            for envelope in envelopes(data)
            if envelope.partition in gone
            and first <= envelope.offset < log.seen
            and log.waits(envelope.offset)
            if (number := id_of(store.index, envelope.offset)) not in fold.holders
        ]
        if found:
            self._engine.accept(Due([], [], [], self._engine.now(), found))
            self._schedule.gone += len(found)
        *_, (_, _, offset, count) = walk(data)
        return offset + count

    def bound_for(self, partitions: Set[int]) -> int | None:
        """Return how many messages wait for these partitions, also unforced ones; None if that is not known, because
        too much is new in the logs, or something there cannot be read. Those of undecided transactions do not count.
        """
        count, left = sum(self._fold.targets.get(each, 0) for each in partitions), UNSEEN
        for store in self._schedule.stores:
            log, offset = self._fold.logs[store.index], self._fold.logs[store.index].seen_to
            if log.damaged:
                return None
            while offset < store.end_offset:
                data = store.at_hand(offset, PIECE_BYTES) if left > 0 else None
                if data is None:
                    return None
                left -= len(data)
                for envelope in envelopes(data):
                    is_new = envelope.offset >= offset and log.waits(envelope.offset)
                    count += is_new and envelope.partition in partitions
                *_, (_, _, last, behind) = walk(data)
                offset = last + behind
        return count

    def _pass_over(self, store: MessageStore, error: Exception, start: int) -> int:
        """Return the offset at which to go on behind messages that cannot be read: those that are lost are over, others
        are looked at again. That is ``start`` if nothing is known of how many they are.
        """
        if not isinstance(error, CorruptSegment) or (error.lost and self._engine.busy):
            self._schedule.on_damage(id_of(store.index, start), error)
            return start
        end = min(error.last_offset + 1, store.high_watermark)
        if error.lost:
            self._give_up(store, range(start, end))
        else:
            self._fold.logs[store.index].pass_over(range(start, end))
            self._again_at = self._engine.now() + MINUTE
            self._schedule.on_damage(id_of(store.index, start), error)
        return end

    def _give_up(self, store: MessageStore, offsets: range) -> None:
        """Let messages be over that are lost. One that is held is looked at again until that transaction is decided."""
        log, held = self._fold.logs[store.index], self._fold.holders
        waits = [offset for offset in offsets if log.waits(offset)]
        for offset in waits:
            if id_of(store.index, offset) in held:
                self._fold.see_held(store.index, offset, self._schedule.now(Clock.ELAPSED))
        gone = [(number, 0) for offset in waits if (number := id_of(store.index, offset)) not in held]
        if gone:
            self._engine.accept(Due([], [], [], self._engine.now(), gone))
            self._schedule.gone += len(gone)

    def _take(self, store: MessageStore, data: bytes, offsets: range) -> int:
        """Put those of a run of frames into the timetables that are at these offsets; return its end, or theirs."""
        log, index = self._fold.logs[store.index], store.index
        for envelope in envelopes(data):
            if envelope.offset in offsets and log.waits(envelope.offset):
                self._fold.see(index, envelope.offset, envelope.partition, envelope.clock, envelope.due)
        *_, (_, _, offset, count) = walk(data)
        return min(offset + count, offsets.stop)
