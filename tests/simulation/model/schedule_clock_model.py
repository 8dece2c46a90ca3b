"""The model of the schedule's clocks: between which bounds schedule time is, and when the wall clock counts.

It goes by what the machine's clocks have shown, and by the rules of docs/decisions/0054-the-schedule.md alone: schedule
time passes while the broker runs, and at a start by how much the wall clock is ahead of what the broker was told last.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.model.log_model import require

HOUR = 3_600_000_000
A_JUMP = 1_000_000
"""µs; by less the wall clock may differ from what the broker was told."""


class ScheduleClock:
    """``read`` returns how long the broker has run on this disk in all its lives, and the wall clock, both in µs.

    ``low`` and ``high`` are what schedule time was at least and at most when nothing had run; ``low`` is None until
    somebody was told.
    """

    def __init__(self, read: Callable[[], tuple[int, int]]) -> None:
        self.read = read
        self.low: int | None = None
        self.high = 0
        self._offsets: list[int] = []
        """How far the wall clock was ahead of the time that has passed, as the broker may have been told last."""
        self._sure_at = 0
        """When something was surely forced last, as time that has passed."""
        self._held_unsurely = False
        self.peak: int | None = None
        """What the wall clock has shown at most before messages that are due by it were held; None: they are not."""

    # -- questions -----------------------------------------------------------------------------------

    def least(self) -> int:
        """Return the least that schedule time may be now."""
        return (self.low or 0) + self.read()[0]

    def most(self) -> int:
        """Return the most that it may be now."""
        return self.high + self.read()[0]

    @property
    def is_known(self) -> bool:
        """Whether anybody was told of it."""
        return self.low is not None

    # -- what is told ----------------------------------------------------------------------------------

    def told(self, now: int, asked_at: int) -> None:
        """Somebody who asked when so much time had passed was told that it is so late."""
        passed, wall = self.read()
        if self.low is None:
            require(abs(wall - now) < 10 * HOUR, f"schedule time begins as the wall clock, {wall}", now)
            self.low, self.high = now - passed, now - asked_at
        least, most = self.low + asked_at, self.high + passed
        require(least <= now <= most, f"schedule time is {least} to {most}", now)
        self.low, self.high = max(self.low, now - passed), min(self.high, now - asked_at)

    def sure(self) -> None:
        """The schedule has run since the wall clock was changed, and what it has decided is forced."""
        passed, wall = self.read()
        self._sure_at = passed
        self._offsets = [each for each in self._offsets if abs(wall - passed - each) < A_JUMP]
        self._offsets.append(wall - passed)
        self._held_unsurely = False

    def released(self) -> None:
        """Somebody asks to let go what is held."""
        self.peak = None

    # -- what happens to the machine ------------------------------------------------------------------

    def jumps(self, wall: int) -> None:
        """The wall clock is about to be set while the broker runs."""
        passed, before = self.read()
        if len(self._offsets) == 1 and self.peak is None and wall - passed - self._offsets[0] > HOUR + A_JUMP:
            self.peak, self._held_unsurely = before, True
        elif self._held_unsurely:
            self.peak, self._held_unsurely = None, False
        self._offsets.append(wall - passed)

    def attempted(self) -> None:
        """A start has failed, but perhaps not before it had told the journal of the wall clock."""
        passed, wall = self.read()
        if self.low is not None:
            self.high += max(0, *(wall - passed - each for each in self._offsets))
            self.low -= passed - self._sure_at
        self._offsets.append(wall - passed)
        self._not_held()

    def started(self) -> None:
        """A start has told the journal of the wall clock."""
        passed, wall = self.read()
        if self.low is not None:
            ahead = [wall - passed - each for each in self._offsets]
            self.high += max(0, *ahead)
            self.low += max(self._sure_at - passed, min(ahead))
        self._offsets, self._sure_at = [wall - passed], passed
        self._not_held()

    def _not_held(self) -> None:
        """What the wall clock has jumped by may have counted as time stopped."""
        if self._held_unsurely:
            self.peak, self._held_unsurely = None, False
