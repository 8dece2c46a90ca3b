"""A clock that stands still until a test moves it."""

from __future__ import annotations

from zope.interface import implementer

from journal.interfaces import IClock


@implementer(IClock)
class ManualClock:
    """A clock in microseconds. :meth:`advance` moves both its times, :meth:`set_wall` only the wall clock."""

    def __init__(self, monotonic: int = 0, wall: int = 1_700_000_000_000_000) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> int:
        """Return microseconds that only ever grow."""
        return self._monotonic

    def seconds(self) -> float:
        """Return the monotonic time in seconds."""
        return self._monotonic / 1_000_000

    def wall(self) -> int:
        """Return microseconds since 1970 UTC, which may be set back."""
        return self._wall

    def advance(self, microseconds: int) -> None:
        """Let that much time pass."""
        if microseconds < 0:
            raise ValueError("monotonic time does not run backwards; use set_wall for the other clock")
        self._monotonic += microseconds
        self._wall += microseconds

    def set_wall(self, wall: int) -> None:
        """Step the wall clock, forward or back, as an administrator or NTP would."""
        self._wall = wall
