"""The tally of clients for Python: messages sent and acknowledged, messages read, and when."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable

from benchmarks.peers.programs import Said

EACH = 100
"""The number of messages after which the clock is read, and a latency taken."""

READ_FOR = 10.0
"""The most seconds of reading."""

clock = time.perf_counter


class Sending:
    """Counts messages sent and acknowledged; the warm-up is over when ``begun`` is set."""

    def __init__(self, warm_up: float, seconds: float) -> None:
        self._begin = clock() + warm_up
        self._end = self._begin + seconds
        self.sent = 0
        self.acknowledged = 0
        self._at_begin: tuple[int, float] | None = None
        self._latencies = array("d")

    def goes_on(self) -> bool:
        """Return whether there is time left; it is asked before every so many messages."""
        now = clock()
        if self._at_begin is None and now >= self._begin:
            self._at_begin = self.acknowledged, now
        return now < self._end

    def timed(self) -> Callable[..., None]:
        """Return a function to be called, with any arguments, when the message that is sent now is acknowledged."""
        began = clock()

        def acknowledged(*_: object) -> None:
            if began >= self._begin:
                self._latencies.append(clock() - began)

        return acknowledged

    def said(self) -> Said:
        """Return the result when everything is acknowledged: the time to the last acknowledgement counts, too."""
        if self._at_begin is None or self.acknowledged != self.sent:
            raise RuntimeError(f"{self.acknowledged} messages of {self.sent} were acknowledged")
        before, began = self._at_begin
        return said(self.acknowledged, self.acknowledged - before, clock() - began, self._latencies)


def said(acknowledged: int, counted: int, seconds: float, latencies: array[float]) -> Said:
    ordered = sorted(latencies)
    last = len(ordered) - 1
    p50, p99 = (ordered[last // 2], ordered[int(0.99 * last)]) if ordered else (None, None)
    return Said(acknowledged, counted, seconds, p50, p99)


class Reading:
    """Counts messages read."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._began = clock()
        self.read = 0

    def goes_on(self) -> bool:
        return self.read < self._expected and clock() < self._began + READ_FOR

    def said(self) -> Said:
        if not self.read:
            raise RuntimeError(f"none of {self._expected} messages was read")
        return Said(self.read, self.read, clock() - self._began)
