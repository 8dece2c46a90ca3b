"""The pace of what reads and writes in bulk: so many bytes a second, and now and then a look whether to go on."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOKED_EVERY = 1.0
"""Seconds after which, at the latest, it is looked whether to go on."""
AT_ONCE = 1 << 20
"""Bytes that are read or written in one call."""


class Pace:
    """Counts bytes, waits so that they are no more than ``rate`` a second (0: as many as can be), and calls ``look``.

    ``look`` may raise to end the work. Waiting is cut into pieces, so that it is called in time.
    """

    def __init__(
        self,
        rate: int = 0,
        look: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = rate
        self.look = look
        self._clock = clock
        self._sleep = sleep
        self._due = self._looked = clock()
        self.bytes = 0

    def count(self, size: int) -> None:
        """Count bytes that were read or written."""
        self.bytes += size
        now = self._clock()
        if self._rate:
            self._due = max(self._due, now - LOOKED_EVERY) + size / self._rate
        while True:
            if now - self._looked >= LOOKED_EVERY:
                self._looked = now
                if self.look is not None:
                    self.look()
            if not self._rate or self._due <= now:
                return
            self._sleep(min(self._due - now, LOOKED_EVERY))
            now = self._clock()
