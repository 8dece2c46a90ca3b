"""A scene for tests of the schedule: an engine in memory, its schedule, and what was scheduled in it."""

from __future__ import annotations

from journal.formats import frame
from journal.formats.envelope import Clock, log_for, seal
from journal.formats.frame import HEADER
from journal.schedule.cancelling import Found, cancel, look_up
from journal.schedule.judging import Judge
from journal.schedule.schedule import Schedule
from journal.schedule.steps import carry_out
from journal.scheduled_id import ScheduledId
from journal.testing import ManualClock, MemoryFilesystem
from tests.support.engine_room import Begun, Room

SECOND = 1_000_000


class ScheduleRoom(Room):
    """A room with a schedule."""

    @property
    def schedule(self) -> Schedule:
        if getattr(self, "_of", None) is not self.engine:
            self._of, self._schedule = self.engine, Schedule(self.engine)
        return self._schedule

    def envelope(self, value: bytes, after: int, clock: Clock, number: int) -> tuple[int, bytes]:
        """Return the log for an envelope, and the envelope."""
        stores = self.schedule.make()
        due = max(1, self.schedule.now(clock) + after)
        sealed = seal(frame.encode(value, 1), number, clock, due)
        store = stores[log_for(after)]
        Judge(self.schedule).check(store, sealed)
        return store.number, sealed

    def later(self, value: bytes, after: int, clock: Clock = Clock.ELAPSED, number: int = 1) -> ScheduledId:
        """Schedule a message, unforced."""
        log, sealed = self.envelope(value, after, clock, number)
        store = self.engine.catalog.stores[log]
        offset = self.engine.append(store, sealed, 1)
        return ScheduledId(store.index, offset, HEADER.unpack_from(sealed)[1])

    def run(self) -> None:
        """Place what is due, and force it."""
        carry_out(self.schedule.run())
        self.engine.sync()

    def cancel(self, *ids: ScheduledId) -> list[Found]:
        found: list[Found] = carry_out(cancel(self.schedule, self.look_up(*ids)))
        self.engine.sync()
        return found

    def look_up(self, *ids: ScheduledId) -> list[Found]:
        found: list[Found] = carry_out(look_up(self.schedule, ids))
        return found

    def begin_later(self, *values: tuple[bytes, int]) -> Begun:
        """Begin a transaction with messages that are due so many µs after now."""
        begun = self.begin()
        for value, after in values:
            log, sealed = self.envelope(value, after, Clock.ELAPSED, 1)
            begun.add_frames(log, sealed)
        return begun


def room_after(disk: MemoryFilesystem, clock: ManualClock | None = None) -> ScheduleRoom:
    """Return the next start on a disk."""
    return ScheduleRoom(disk, clock=clock)
