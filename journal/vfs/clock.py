"""The clocks of the operating system."""

from __future__ import annotations

import time

from zope.interface import implementer

from journal.interfaces import IClock


@implementer(IClock)
class SystemClock:
    """Both clocks in microseconds; :class:`journal.testing.ManualClock` is the one that tests step."""

    def monotonic(self) -> int:
        """Microseconds that only ever grow."""
        return time.monotonic_ns() // 1000

    seconds = staticmethod(time.monotonic)

    def wall(self) -> int:
        """Microseconds since 1970 UTC."""
        return time.time_ns() // 1000
