"""A journal group as the engine fills and publishes it, and its times if a request has asked for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from journal.interfaces import IClock
from journal.log.message_store import MessageStore
from journal.wal.writer import Forced, Journal, JournalGroup

Deliver = Callable[[Any], None]


@dataclass(slots=True, eq=False)
class GroupTimes:
    """The times of a group's steps: its writing began, it was written, forced, shown. µs of ``clock``, 0 for
    not yet.
    """

    clock: IClock
    begun: int = 0
    written: int = 0
    forced: int = 0
    shown: int = 0


@dataclass(slots=True, eq=False)
class Group(JournalGroup):
    """A journal group with what publishing it does: high watermarks to move, answers to deliver."""

    ends: dict[MessageStore, int] = field(default_factory=dict)
    waiters: list[tuple[Deliver, Any]] = field(default_factory=list)
    times: GroupTimes | None = None

    def timed(self, clock: IClock) -> GroupTimes:
        """Have its times recorded from now on."""
        times = self.times
        if times is None:
            times = self.times = GroupTimes(clock)

            def shown(_: object) -> None:
                times.shown = clock.monotonic()

            self.waiters.insert(0, (shown, None))  # before all answers, after readers have been woken
        return times

    def write(self, journal: Journal, now: Callable[[], float]) -> float:
        """Write and force it, on the writer's thread; see :meth:`journal.engine.engine.Engine.write`. One without
        records, in which only transient queues have changed, is not written.

        ``times`` may be set while this runs, hence the check before each step; calling ``_passed`` for nothing took
        more instructions than both calls of ``now``.
        """
        if not self.count:
            return 0.0
        begun = now()
        if self.times is not None:
            self._passed("begun")
        journal.write(self)
        if self.times is not None:
            self._passed("written")
        journal.force()
        if self.times is not None:
            self._passed("forced")
        return now() - begun

    def forced_alone(self, journal: Journal, forced: Forced) -> float:
        """Note what came of it when it was written and forced past its file; return how many seconds that took."""
        journal.forced_alone(self, forced)
        times = self.times
        if times is not None:
            times.begun, times.written, times.forced = (
                nanoseconds // 1000 for nanoseconds in (forced.begun, forced.written, forced.forced)
            )
        return (forced.forced - forced.begun) / 1e9

    def _passed(self, stage: str) -> None:
        assert self.times is not None
        setattr(self.times, stage, self.times.clock.monotonic())
