"""The schedule of an engine: what is new in its logs goes into the timetables, and what is due goes to its partitions.

It decides nothing by itself: :meth:`Schedule.run` is called by whoever has the engine, on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from journal.engine.engine import Engine
from journal.errors import CorruptSegment, DiskFull, MemoryExhausted
from journal.folds.timetable import PIECE, Timetable
from journal.formats.envelope import (
    DAY,
    LOGS,
    MINUTE,
    PLACES_TOPIC,
    SCHEDULE_TOPIC,
    Clock,
    Envelope,
    envelopes,
    id_of,
    place_of,
)
from journal.log.message_store import MessageStore
from journal.log.read_plan import ReadPlan
from journal.parties import Actor
from journal.records.record import LogStartMoved, TopicCreated, WallClockTold
from journal.schedule.placing import MOST, Batch, DueBatch, Exchanges, NoExchanges
from journal.schedule.seeing import PIECE_BYTES, Seeing
from journal.schedule.steps import Steps, Work, run_all
from journal.settings import TopicSettings

SEGMENT_BYTES: Final = 64 << 20
FORCE_MESSAGES: Final = 50_000
FETCHED_AT_ONCE: Final = 512
"""Most messages that are read from files at once, of those that are due within ``FETCH_AHEAD``."""
FETCH_AHEAD: Final = 2_000_000
FETCHED_BYTES: Final = 16 << 20
"""Most bytes of messages that were read ahead of their time."""
READ_BYTES: Final = 1 << 20
GAP: Final = 64
"""Messages that lie closer together are read together."""
JUMP: Final = 1_000_000
"""µs; by less the wall clock is corrected all the time."""
HOLD: Final = 60 * MINUTE
"""What is due by the wall clock is held after a jump forward by more µs."""
FEW: Final = 100_000
"""Entries of messages that were taken back, which may stay: 0.8 MB."""
LOOKED_AT: Final = 1_024
"""Entries of a timetable that are looked at in one part, in about 2 ms."""
LOOK_AGAIN: Final = 1_000_000
"""µs after which a message that was due while a prepared transaction holds it is looked at again."""

_Entry = tuple[int, int, int]
"""What is due: when, its entry in the timetable, its id."""
_KEPT: Final = TopicSettings(force_messages=FORCE_MESSAGES, segment_bytes=SEGMENT_BYTES)
_TOPICS: Final = (
    (SCHEDULE_TOPIC, LOGS, _KEPT),
    (PLACES_TOPIC, 1, msgspec.structs.replace(_KEPT, retention_age=DAY)),
)
"""What goes of the schedule's logs is decided by :meth:`Schedule.retain` alone."""


class Schedule:
    """The schedule of one engine.

    ``placed`` and ``gone`` count, since the start, the messages that were sent when they were due, and those that were
    dropped: their partition was gone, or a repair has found them lost.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.fold = engine, engine.schedule
        self._catalog = engine.catalog
        self._fetched: dict[int, Envelope] = {}
        self._fetched_bytes = 0
        self._is_lost = False
        """Whether what is due was found to be lost, and the logs are to be looked through again."""
        self.placed = self.gone = 0
        self.on_placed: Callable[[int], object] = _nothing
        """Called with how late a message was placed, in µs."""
        self.on_damage: Callable[[int, Exception], object] = _nothing
        """Called with the id of a message that is due and cannot be read, and why; it is tried again each minute."""
        self.on_held: Callable[[int], object] = _nothing
        """Called with by how many µs the wall clock has jumped, if what is due by it is held from now on."""
        self.exchanges: Exchanges = NoExchanges()
        """Where messages go that are for an exchange."""
        self._seeing = Seeing(self)
        self.bound_for = self._seeing.bound_for

    # -- the logs ----------------------------------------------------------------------------------

    @property
    def stores(self) -> list[MessageStore]:
        """The logs of the schedule, none before anything was scheduled."""
        topic = self._catalog.topics.get(SCHEDULE_TOPIC)
        return [] if topic is None else topic.partitions

    def make(self) -> list[MessageStore]:
        """Make the topics of the schedule, if they are not there; return the logs."""
        for name, count, settings in _TOPICS:
            if name not in self._catalog.topics:
                first, at = self._catalog.next_partition, self.engine.now()
                self.engine.accept(TopicCreated(name, first, count, settings, at))
        return self.stores

    def waiting(self) -> int:
        """Return how many messages wait."""
        return sum(self.fold.logs[store.index].waiting(store.end_offset) for store in self.stores)

    # -- time --------------------------------------------------------------------------------------

    def now(self, clock: Clock) -> int:
        """Return the time by a clock, in µs."""
        if clock is Clock.WALL:
            return self.engine.clock.wall()
        return self.fold.time(self.engine.now())

    def next_in(self) -> int | None:
        """Return in how many µs :meth:`run` has something to do if nothing new comes; None if nothing waits."""
        found = []
        for clock, table in self.fold.timetables.items():
            if clock is Clock.WALL and self.fold.holds:
                continue
            if (at := table.next_at()) is not None:
                found.append(max(0, at - self.now(clock)))
        return min(found, default=None)

    # -- work --------------------------------------------------------------------------------------

    def run(self) -> Steps:
        """Look at what is new, place what is due, and drop what is for a deleted topic."""
        self._look_at_clocks()
        self._is_lost = True
        while self._is_lost:
            self._is_lost = False
            yield from self._seeing.see()
            yield from self._seeing.drop_gone()
            yield from self._place_all()

    def _place_all(self) -> Steps:
        for clock in Clock:
            table = self.fold.timetables[clock]
            while self._may_place(clock) and not self._is_lost:
                now = self.now(clock)
                if table.step(now):
                    yield None
                    continue
                if table.first(now) is None or not (yield from self._place(table, now)):
                    break
                yield None
        for clock in Clock:
            yield from self._weed(clock)

    def _weed(self, clock: Clock) -> Steps:
        """Make a timetable anew that has more entries of messages that were taken back than of such that wait."""
        old, new = self.fold.timetables[clock], Timetable()
        if len(old) <= 2 * self.waiting() + FEW:
            return
        for number, (due, entry) in enumerate(old.entries()):
            if self._is_due(self.fold.number_of(entry)):
                new.add(due, entry)
            if number % PIECE == PIECE - 1:
                yield None
        self.fold.timetables[clock] = new

    def _may_place(self, clock: Clock) -> bool:
        """Return whether what is due by a clock may go now: each part of a run may find something else."""
        self._look_at_clocks()
        return not (self.engine.busy or self.engine.full or (clock is Clock.WALL and self.fold.holds))

    def _look_at_clocks(self) -> None:
        """Tell the journal of a jump of the wall clock, so that it is not taken for time that has passed."""
        engine, fold = self.engine, self.fold
        at, wall = engine.now(), engine.clock.wall()
        jump = wall - at - fold.wall
        if abs(jump) >= JUMP and not engine.busy:
            if jump > HOLD and not fold.holds:
                self.on_held(jump)
            engine.accept(WallClockTold(wall, at, fold.holds or jump > HOLD))

    def release(self, by: Actor | None) -> None:
        """Let messages that are due by the wall clock go, which are held since it has jumped."""
        engine = self.engine
        engine.accept(WallClockTold(engine.clock.wall(), engine.now(), holds=False, by=by))

    def _place(self, table: Timetable, now: int) -> Generator[Work | None, Any, bool]:
        """Place some of what is due; return whether that was possible."""
        due = self._due(table, now)
        looked_at, done = 0, False
        try:
            at_hand = self._at_hand([number for _, _, number in due])
            batch, placed, later = self._gathered(due, at_hand)
            looked_at = len(placed) + len(later)
            if placed:
                batch.place()
            done = True
        except MemoryExhausted:
            self.engine.want_flush()
            return False
        except DiskFull:
            return False
        finally:
            for moment, entry, _ in due[looked_at:] if done else due:
                table.add(moment, entry)
        for _, entry, _ in later:
            table.add(now + MINUTE, entry)
        self._placed(batch, placed, now)
        if due and not looked_at:
            yield from self._fetch(table, due[0][1], now)
            return not (self._is_lost or self.engine.busy or self.engine.full)
        return True

    def _gathered(
        self, due: list[_Entry], at_hand: dict[int, Envelope]
    ) -> tuple[DueBatch, list[_Entry], list[_Entry]]:
        """Return a batch of the first of those that are due, which they are, and which of them cannot be placed yet.
        They all go to partitions, or through the same exchange.
        """
        batch: DueBatch = Batch(self.engine)
        way, placed, later = 0, list[_Entry](), list[_Entry]()
        for each in due:
            envelope = at_hand.get(each[2])
            if envelope is None:
                break
            to = envelope.partition
            to = to if to < 0 and to in self.exchanges else 0
            if not placed and to != way:
                batch, way = self.exchanges.batch(to) if to else Batch(self.engine), to
            if to != way or not batch.fits(envelope):
                break
            (placed if batch.add(each[2], envelope) else later).append(each)
        return batch, placed, later

    def has(self, partition: int) -> bool:
        """Return whether there is a partition of that number, or an exchange at that address, as far as is known."""
        return partition in (self._catalog.stores if partition >= 0 else self.exchanges)

    def _due(self, table: Timetable, now: int) -> list[_Entry]:
        """Take what is due first out of a timetable, some of it. It may be nothing, though more is due: of what was
        taken back, or is held, a bounded part is passed over.
        """
        found: list[_Entry] = []
        for _ in range(LOOKED_AT):
            if len(found) >= MOST or (first := table.first(now)) is None:
                break
            entry, moment = first
            number = self.fold.number_of(entry)
            table.remove_first()
            if number in self.fold.holders:
                table.add(now + LOOK_AGAIN, entry)
            elif self._is_due(number):
                found.append((moment, entry, number))
        return found

    def _placed(self, batch: DueBatch, due: list[_Entry], now: int) -> None:
        self.placed += batch.count
        self.gone += len(batch.gone)
        for moment, _, number in due:
            self.on_placed(now - moment)
            if (envelope := self._fetched.pop(number, None)) is not None:
                self._fetched_bytes -= len(envelope.frame)

    # -- messages in memory and on the disk --------------------------------------------------------

    def _at_hand(self, numbers: list[int]) -> dict[int, Envelope]:
        """Return the envelopes with these ids, as far as they need not be read from the disk.

        Those that lie close together are read together: 20 µs each, 100 one by one.
        """
        wanted, found, stores = set(numbers), dict[int, Envelope](), self.stores
        fetched = self._fetched
        for number in numbers:
            if number in fetched:
                found[number] = fetched[number]
        for log, first, last in _runs(wanted.difference(found)):
            offset, before = first, -1
            while before < offset <= last and (data := stores[log].at_hand(offset, PIECE_BYTES)) is not None:
                before = offset
                for envelope in envelopes(data):
                    if (number := id_of(log, envelope.offset)) in wanted:
                        found[number] = envelope
                    offset = envelope.offset + 1
                    if offset > last:
                        break
        return found

    def _fetch(self, table: Timetable, entry: int, now: int) -> Steps:
        """Read a message from the disk, and with it others that will be due soon."""
        number = self.fold.number_of(entry)
        if self._fetched_bytes > FETCHED_BYTES:
            self._fetched.clear()  # they were not due in the order that was expected
            self._fetched_bytes = 0
        soon = map(self.fold.number_of, islice(table.coming(now + FETCH_AHEAD), FETCHED_AT_ONCE * 4))
        others = [each for each in soon if each not in self._fetched and self._is_due(each)]
        wanted = {number, *others[:FETCHED_AT_ONCE]}
        for log, first, data in (yield partial(run_all, self._plans(wanted, number))):
            if isinstance(data, Exception):
                if number != id_of(log, first):
                    continue
                if isinstance(data, CorruptSegment) and data.lost:
                    # it was there when the timetable was made, and a repair has found it damaged
                    self._is_lost = True
                    self.fold.see_again()
                    return
                self._put_off(table, entry, now, data)
                continue
            for envelope in envelopes(data):
                found = id_of(log, envelope.offset)
                if found in wanted:
                    frame = memoryview(bytes(envelope.frame))
                    self._fetched[found] = envelope._replace(frame=frame)
                    self._fetched_bytes += len(frame)

    def _put_off(self, table: Timetable, entry: int, now: int, error: Exception) -> None:
        """Try a message again later whose frame cannot be read; others go on."""
        table.remove_first()
        table.add(now + MINUTE, entry)
        self.on_damage(self.fold.number_of(entry), error)

    def _is_due(self, number: int) -> bool:
        log, offset = place_of(number)
        return self.fold.logs[log].is_due(offset)

    def _plans(self, wanted: Iterable[int], needed: int) -> list[tuple[int, int, ReadPlan]]:
        """Return the reads of the messages with these ids.

        A read begins at the one that is ``needed``, so that it is surely read, however large those before it are.
        """
        stores = self.stores
        return [
            (log, first, stores[log].plan_read(first, READ_BYTES, last + 1))
            for log, first, last in _runs(wanted, needed)
        ]

    # -- what is over ------------------------------------------------------------------------------

    def retain(self) -> int:
        """Let the logs begin behind what has been over for a day; return how many have moved."""
        moved = 0
        for store in self.stores:
            log = self.fold.logs[store.index]
            start, sealed = min(log.begins, log.seen), store.sealed_segments
            if sealed and sealed[0].end_offset <= start and not self.engine.busy:
                self.engine.accept(LogStartMoved(store.number, start, self.engine.now()))
                moved += 1
        return moved


def _runs(wanted: Iterable[int], needed: int | None = None) -> list[tuple[int, int, int]]:
    """Return the (log, first offset, last offset) of messages that lie close together; one begins at ``needed``."""
    runs: list[tuple[int, int, int]] = []
    begins = None if needed is None else place_of(needed)
    for log, offset in sorted(map(place_of, wanted)):
        is_near = bool(runs) and runs[-1][0] == log and offset - runs[-1][2] <= GAP
        if is_near and (log, offset) != begins:
            runs[-1] = log, runs[-1][1], offset
        else:
            runs.append((log, offset, offset))
    return runs


def _nothing(*_: object) -> None:
    """Count nothing."""
