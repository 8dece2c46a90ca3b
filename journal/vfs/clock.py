"""The clocks of the operating system."""

from __future__ import annotations

import time

from zope.interface import implementer

from journal.interfaces import IClock


@implementer(IClock)
class SystemClock:
    """Both clocks in microseconds; tests step a :class:`journal.testing.ManualClock` instead."""

    def monotonic(self) -> int:
        """Return microseconds that only ever grow."""
        return time.monotonic_ns() // 1000

    seconds = staticmethod(time.monotonic)

    def wall(self) -> int:
        """Return microseconds since 1970 UTC."""
        return time.time_ns() // 1000
