"""The progress of one stage of a start, its speed and its remaining time, for people who wait for it."""

from __future__ import annotations

from collections.abc import Callable

from journal.constants import MIB
from journal.interfaces import IClock

Progress = Callable[[str], object]
"""Is called now and then with a line of progress; it may raise to stop the start."""

BYTES_STEP = 4 * MIB
THINGS_STEP = 256


class Meter:
    """Counts bytes, or ``things`` if these are named, up to ``total``, and reports every few MiB or hundred.

    ``say`` gets a line such as ``replaying the journal: 37 % of 512 MiB, 130 MiB/s, 3 s left``.
    """

    def __init__(self, clock: IClock, say: Progress, what: str, total: int, things: str = "") -> None:
        self._clock = clock
        self._say = say
        self._what = what
        self._total = total
        self._things = things
        self._step = THINGS_STEP if things else BYTES_STEP
        self._done = 0
        self._next = 0
        self._began = clock.monotonic()

    def advance(self, amount: int) -> None:
        """Count ``amount`` that is about to be done; so the first call reports that the stage begins."""
        if self._done >= self._next:
            self._next = self._done + self._step
            self._say(str(self))
        self._done += amount

    def __str__(self) -> str:
        scale, unit = (1, f" {self._things}") if self._things else (MIB, " MiB")
        text = f"{self._what}: {100 * self._done // max(self._total, 1)} % of {self._total // scale:,}{unit}"
        seconds = (self._clock.monotonic() - self._began) / 1e6
        if not self._done or seconds <= 0:
            return text
        left = seconds * (self._total - self._done) / self._done
        return f"{text}, {self._done / scale / seconds:,.0f}{unit}/s, {left:.0f} s left"
