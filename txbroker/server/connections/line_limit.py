"""How many lines of the log are about connections that have not logged in: whoever connects could fill the disk."""

from __future__ import annotations

from typing import Final

RATE: Final = 1.0
"""Lines a second in the long run: about 20 MB a day, as of the audit."""
BURST: Final = 60
"""Lines at once."""
SPAN: Final = 10.0
"""Seconds between two lines that say how many others were left out."""


class LineLimit:
    """Says whether a line may be written, and counts those that may not. Times are in seconds, of any clock."""

    def __init__(self) -> None:
        self._credit = float(BURST)
        self._as_of: float | None = None
        self._told = 0.0
        self._left_out = 0

    def allows(self, now: float) -> bool:
        """Return whether a line may be written now; if not, it is counted as left out."""
        passed = 0.0 if self._as_of is None else max(now - self._as_of, 0.0)
        self._as_of = now
        self._credit = min(float(BURST), self._credit + passed * RATE)
        if self._credit < 1:
            self._left_out += 1
            return False
        self._credit -= 1
        return True

    def left_out(self, now: float) -> int:
        """Return how many lines were left out since this was told last; 0 until it is time to tell it again."""
        if not self._left_out or now - self._told < SPAN:
            return 0
        left_out, self._left_out, self._told = self._left_out, 0, now
        return left_out
