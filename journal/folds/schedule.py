"""The fold of the schedule: which scheduled messages are over, which are held, and what time it is (decision 0054).

The messages themselves lie in the logs of the schedule. Here is, for each log, which offsets are over. All others wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final

import msgspec
from zope.interface import implementer

from journal.folds.timetable import ENTRY_BITS, Some, Timetable
from journal.formats.checkpoint_rows import Count, Fact, RowReader
from journal.formats.envelope import DAY, LOGS, Clock, id_of, place_of
from journal.formats.offset_set_bytes import decode_pieces, encode_pieces
from journal.interfaces import ICommitFold
from journal.offset_set import OffsetSet
from journal.records.record import (
    Cancelled,
    Due,
    Published,
    Scheduled,
    Started,
    TransactionCommitted,
    TransactionPrepared,
    TransactionRolledBack,
    WallClockTold,
)
from journal.transaction_states import TransactionNumber

_HOUR: Final = DAY // 24
_LOG_BITS: Final = id_of(0, 1).bit_length() - 1
_ENTRY: Final = (1 << ENTRY_BITS) - 1
_LOW: Final = _ENTRY >> _LOG_BITS
_HALF: Final = _LOW + 1 >> 1
KEPT_HOURS: Final = 24
"""For so long a message that is over is known as such,"""
KEPT: Final = 1 << 20
"""if there are not so many behind it, in its log, that all of them are over. Both are part of the fold's meaning."""


class LogRow(msgspec.Struct, array_like=True, frozen=True):
    """A log of the schedule in a checkpoint.

    Of its messages from ``begins`` on, those in the set ``over`` are over, and of these those in ``cancelled`` were
    taken back; everything below is over. The sets are in pieces of ``MAX_SPAN`` offsets each. ``fronts`` are (hour of
    journal time, the first that waited when it ended), ``hour`` is the one in which a message was over last. ``seen``
    is the offset up to which the timetables have its messages.
    """

    begins: Count
    over: list[bytes]
    cancelled: list[bytes]
    hour: Count
    fronts: list[tuple[Count, Count]]
    seen: Count


class ClockRow(msgspec.Struct, array_like=True, frozen=True):
    """The clocks in a checkpoint: schedule time (None before the first start) and the wall clock at journal time 0; and
    whether messages that are due by the wall clock are held.
    """

    elapsed: int | None
    wall: int
    holds: bool


class HeldRow(msgspec.Struct, array_like=True, frozen=True):
    """What a prepared transaction takes back, in a checkpoint."""

    number: TransactionNumber
    messages: list[Scheduled]


class TimesRow(msgspec.Struct, array_like=True, frozen=True):
    """Some entries of the timetable of a clock; see :class:`journal.folds.timetable.Some`."""

    clock: Clock
    start: Count
    width: Count
    items: bytes

    def check(self) -> None:
        """Raise ``msgspec.ValidationError`` if no timetable has such entries."""
        if not Some(self.start, self.width, self.items).is_possible:
            raise msgspec.ValidationError(f"no timetable has such entries from {self.start} on")


class ScheduleLog:
    """What is known of one log of the schedule."""

    def __init__(self) -> None:
        self.begins = 0
        """Everything below is over."""
        self.over, self.cancelled = OffsetSet(), OffsetSet()
        self._count = 0
        """How many are in ``over``: to count them takes 30 µs for a million, and each send asks."""
        self.hour = 0
        self.fronts: list[tuple[int, int]] = []
        """An hour of journal time, and the lowest offset that waited when it ended; ``hour`` is the present one."""
        self.seen = 0
        self.beyond = 0
        """While damage keeps :attr:`seen` where it is: up to which offset messages behind that have been seen, else 0.
        This and the next two are not in a checkpoint.
        """
        self.damaged: list[range] = []
        """The offsets between these that cannot be read."""
        self.ahead: dict[int, int] = {}
        """How many of the messages from ``seen`` on that have been seen wait for each partition."""

    def waits(self, offset: int) -> bool:
        """Return whether the message at an offset of the log is not over."""
        return offset >= self.begins and offset not in self.over

    def is_due(self, offset: int) -> bool:
        """Return whether what the timetable has at an offset is to be placed: it waits, and has been seen."""
        return self.is_seen(offset) and self.waits(offset)

    def is_seen(self, offset: int) -> bool:
        """Return whether the message at an offset has been put into a timetable, if it waited then."""
        if offset < self.seen or not self.beyond:
            return offset < self.seen
        return offset < self.beyond and not any(offset in each for each in self.damaged)

    @property
    def seen_to(self) -> int:
        """The offset from which on nothing has been seen."""
        return max(self.seen, self.beyond)

    def move_to(self, offset: int) -> None:
        """Note that all up to there has been seen, but for what is damaged."""
        if self.beyond:
            self.beyond = offset
        else:
            self.seen = offset

    def pass_over(self, damaged: range) -> None:
        """Note that these cannot be read."""
        self.damaged.append(damaged)
        self.beyond = damaged.stop

    def mend(self, damaged: list[range]) -> None:
        """Note that of what was damaged only this still is."""
        self.damaged = damaged
        if not damaged:
            self.seen, self.beyond, self.ahead = self.seen_to, 0, {}

    def waiting(self, end: int) -> int:
        """Return how many messages wait in a log with that end."""
        return end - self.begins - self._count

    @property
    def first(self) -> int:
        """The lowest offset that may wait."""
        return self.over.missing_from(self.begins)

    def end(self, offset: int, cancelled: bool) -> None:
        """Note that a message is over."""
        assert self.waits(offset), f"it ends the message at offset {offset} of the schedule, which is over"
        self.over.add(offset)
        self._count += 1
        if cancelled:
            self.cancelled.add(offset)

    def note_hour(self, hour: int) -> None:
        """Note, before the first message of an hour of journal time is over, what has been over since the last such
        hour; forget what has been for a day.
        """
        if hour > self.hour:
            self.fronts.append((self.hour, self.first))
            self.hour = hour
            self._forget(max([0, *(front for since, front in self.fronts if since <= hour - KEPT_HOURS)]))
            self.fronts = [each for each in self.fronts if each[0] > hour - KEPT_HOURS]
        elif self._count > KEPT:
            self._forget(self.first - KEPT)

    def _forget(self, begins: int) -> None:
        if begins > self.begins:
            self.begins = begins
            self.over.discard_below(begins)
            self.cancelled.discard_below(begins)
            self._count = len(self.over)

    def row(self) -> LogRow:
        """Return the row for a checkpoint."""
        over, cancelled = (encode_pieces(each, self.begins) for each in (self.over, self.cancelled))
        return LogRow(self.begins, over, cancelled, self.hour, list(self.fronts), self.seen)

    @classmethod
    def of(cls, row: LogRow) -> ScheduleLog:
        """Return the log of a row."""
        found = cls()
        found.begins, found.hour, found.fronts, found.seen = row.begins, row.hour, list(row.fronts), row.seen
        found.over, found.cancelled = (decode_pieces(each, row.begins) for each in (row.over, row.cancelled))
        found._count = len(found.over)
        return found


@implementer(ICommitFold)
class ScheduleFold:
    """The state of the schedule, and of its clocks.

    ``timetables``, ``targets`` and the ``seen`` of the logs are no part of the fold's meaning: they can be made again
    from the logs. Whoever runs the schedule changes them; a checkpoint keeps them so that a start need not read all
    messages.
    """

    name = "schedule"
    handles: tuple[type, ...] = (
        Started,
        Due,
        Published,
        Cancelled,
        WallClockTold,
        TransactionPrepared,
        TransactionCommitted,
        TransactionRolledBack,
    )

    def __init__(self) -> None:
        self.logs = [ScheduleLog() for _ in range(LOGS)]
        self.timetables = {clock: Timetable() for clock in Clock}
        self.holders: dict[int, TransactionNumber] = {}
        """The prepared transaction that takes a message back, by its id."""
        self._held: dict[TransactionNumber, list[Scheduled]] = {}
        self.targets: dict[int, int] = {}
        """How many messages of the timetables wait for each partition, or exchange by its address."""
        self.elapsed: int | None = None
        """Schedule time at journal time 0; None before the first start."""
        self.wall = 0
        """The wall clock at journal time 0, as it was told last."""
        self.holds = False
        """Whether messages that are due by the wall clock are held."""
        self._checkpoint_at = 0
        """Schedule time at the checkpoint with which the last start began."""
        self._ahead_of_wall: set[int] = set()
        """How far schedule time was ahead of the wall clock by which runs of the broker have stamped messages: of those
        whose starts are in the journal, and of the one that took the checkpoint. It is not in a checkpoint.
        """

    # -- questions ---------------------------------------------------------------------------------

    def waits(self, number: int) -> bool:
        """Return whether the message with that id is not over; it must be one of the log."""
        log, offset = place_of(number)
        return self.logs[log].waits(offset)

    def conflict_of(
        self, messages: Sequence[Scheduled], ends: Sequence[int]
    ) -> tuple[int, TransactionNumber | None] | None:
        """Return what stands against taking back these messages; see
        :class:`journal.transactions.decisions.Waiting`.
        """
        known: set[int] = set()
        for number, _ in messages:
            log, offset = place_of(number)
            if number in known or log >= len(ends) or offset >= ends[log] or not self.logs[log].waits(offset):
                return number, None
            if number in self.holders:
                return number, self.holders[number]
            known.add(number)
        return None

    def time(self, at: int) -> int:
        """Return schedule time at journal time ``at``, in µs."""
        return at + (self.elapsed or 0)

    def latest_time(self, appended: int, is_in_checkpoint: bool) -> int:
        """Return the latest schedule time at which a message may have been appended that was stamped so.

        Schedule time does not know jumps of the wall clock. Which run has stamped it is not known: one of those that
        are noted, unless the message was there at the checkpoint with which the last start began.
        """
        stamped = appended + max(self._ahead_of_wall, default=0)
        # A repair's checkpoint has the time of what it was made of, which may be earlier.
        return max(self._checkpoint_at, stamped) if is_in_checkpoint else stamped

    def concerned(self) -> Any:
        """Return the prepared transactions that hold messages; see :class:`ICommitFold`."""
        return self._held.keys()

    def conflict(self, positions: Any, number: Any = None) -> None:
        """Return nothing: what is taken back stands against no position of a group."""

    # -- the fold ----------------------------------------------------------------------------------

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state; asserts that the record continues it."""
        kind = type(record)
        if kind is TransactionCommitted:
            if (record.settles and (taken := record.taken_back)) or (
                self._held and (taken := self._release(record))
            ):
                self._end(taken, record.at, cancelled=True)
        elif kind is TransactionPrepared:
            if record.taken_back:
                self._hold(TransactionNumber(record.session, record.serial), record.taken_back)
        elif kind is TransactionRolledBack:
            if self._held:
                self._release(record)
        elif kind is Published:
            if record.ids:
                self._end(zip(record.ids, repeat(record.address)), record.at)
        elif kind is Due:
            self._end(chain(record.messages(), record.gone), record.at)
        elif kind is Cancelled:
            self._end(record.messages, record.at, cancelled=True)
        elif kind is Started:
            self._started(record.wall - record.at)
        else:
            self.wall, self.holds = record.wall - record.at, record.holds

    def _end(self, messages: Iterable[Scheduled], at: int, *, cancelled: bool = False) -> None:
        for log in self.logs:
            log.note_hour(at // _HOUR)
        for number, partition in messages:
            assert number not in self.holders, (
                f"it ends message {number} of the schedule, which transaction {self.holders[number]} holds"
            )
            index, offset = place_of(number)
            log = self.logs[index]
            log.end(offset, cancelled)
            if log.is_seen(offset):
                self._count(log, offset, partition, -1)

    def _count(self, log: ScheduleLog, offset: int, partition: int, more: int) -> None:
        for counts in (self.targets, log.ahead) if offset >= log.seen else (self.targets,):
            count = counts.get(partition, 0) + more
            if count > 0:
                counts[partition] = count
            else:
                counts.pop(partition, None)

    def see(self, log: int, offset: int, partition: int, clock: Clock, due: int) -> None:
        """Put a message that waits into the timetable. It is in its log, where all before it have been seen."""
        self.timetables[clock].add(due, id_of(log, offset) & _ENTRY)
        of = self.logs[log]
        if of.beyond:
            self._count(of, offset, partition, 1)
        else:
            self.targets[partition] = self.targets.get(partition, 0) + 1

    def see_held(self, log: int, offset: int, now: int) -> None:
        """Put a message into the timetable that a transaction holds, and whose envelope cannot be read."""
        number = id_of(log, offset)
        [partition] = [target for each, target in self._held[self.holders[number]] if each == number]
        self.see(log, offset, partition, Clock.ELAPSED, now)

    def number_of(self, entry: int) -> int:
        """Return the id of an entry of a timetable, which has its low bits: no log is too long for these."""
        index, low = place_of(entry)
        begins = self.logs[index].begins
        return id_of(index, begins + ((low - begins + _HALF) & _LOW) - _HALF)

    def see_again(self) -> None:
        """Forget what has been seen of the logs: what waits is to be put into the timetables anew."""
        self.timetables = {clock: Timetable() for clock in Clock}
        self.targets = {}
        for log in self.logs:
            log.mend([])
            log.seen = 0

    def _hold(self, number: TransactionNumber, messages: list[Scheduled]) -> None:
        for each, _ in messages:
            assert each not in self.holders, (
                f"it holds message {each} of the schedule, which transaction {self.holders[each]} holds"
            )
            assert self.waits(each), f"it holds message {each} of the schedule, which is over"
            self.holders[each] = number
        self._held[number] = list(messages)

    def _release(self, record: TransactionCommitted | TransactionRolledBack) -> list[Scheduled]:
        messages = self._held.pop(TransactionNumber(record.session, record.serial), [])
        for number, _ in messages:
            del self.holders[number]
        return messages

    def _started(self, wall: int) -> None:
        """Let the time that the engine was stopped pass."""
        self.elapsed = wall if self.elapsed is None else self.elapsed + max(0, wall - self.wall)
        self.wall = wall
        self._ahead_of_wall.add(self.elapsed - wall)

    def note_checkpoint(self, at: int, wall_offset: int) -> None:
        """Note, once its rows were restored, that a start begins with a checkpoint of that journal time. The run that
        took it stamps messages by a wall clock that showed ``wall_offset`` at journal time 0.
        """
        if self.elapsed is not None:
            self._checkpoint_at = self.time(at)
            self._ahead_of_wall.add(self.elapsed - wall_offset)

    # -- checkpoints -------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[Any]:
        """Return the clocks, the logs, what is held, and the timetables."""
        rows: list[Any] = [ClockRow(self.elapsed, self.wall, self.holds)]
        rows += [log.row() for log in self.logs]
        rows.append(len(self._held))
        rows += [HeldRow(number, messages) for number, messages in self._held.items()]
        ahead = sum((Counter(log.ahead) for log in self.logs), Counter[int]())
        rows.append([(each, left) for each, count in self.targets.items() if (left := count - ahead[each])])
        keep = self._is_kept if any(log.beyond for log in self.logs) else None
        for clock, timetable in self.timetables.items():
            rows += [TimesRow(clock, *some) for some in timetable.rows(keep)]
        return iter(rows)

    def _is_kept(self, entry: int) -> bool:
        """Return whether an entry of a timetable is for a checkpoint: the next start sees what is not."""
        index, offset = place_of(self.number_of(entry))
        return offset < self.logs[index].seen

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        rows.take(ClockRow)
        for _ in range(LOGS):
            rows.take(LogRow, ScheduleLog.of)
        for _ in range(rows.take(Count)):
            rows.take(HeldRow)
        rows.take(list[tuple[int, Count]])
        while rows.left:
            rows.take(TimesRow, TimesRow.check)

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        iterator = iter(rows)
        clock = next(iterator)
        self.elapsed, self.wall, self.holds = clock.elapsed, clock.wall, clock.holds
        self.logs = [ScheduleLog.of(next(iterator)) for _ in range(LOGS)]
        self.holders, self._held = {}, {}
        for row in [next(iterator) for _ in range(next(iterator))]:
            self._hold(row.number, row.messages)
        self.targets = dict(next(iterator))
        times: dict[Clock, list[Some]] = {each: [] for each in Clock}
        for row in iterator:
            times[row.clock].append(Some(row.start, row.width, row.items))
        self.timetables = {each: Timetable.of(found) for each, found in times.items()}

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the clocks, what is over in each log, and what is held."""
        yield Fact("the clocks of the schedule (elapsed, wall, holds)"), (self.elapsed, self.wall, self.holds)
        for index, log in enumerate(self.logs):
            row = log.row()
            told = (row.begins, row.over, row.cancelled, row.hour, row.fronts)
            yield Fact(f"log {index} of the schedule (begins, over, cancelled, hour, fronts)"), told
        for number, messages in self._held.items():
            yield Fact(f"what transaction {number} takes back of the schedule"), sorted(messages)
