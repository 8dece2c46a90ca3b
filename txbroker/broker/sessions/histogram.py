"""Histograms: how often something took how long, in fixed steps, as Prometheus counts them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCIES: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
)  # fmt: skip
"""Upper bounds in seconds for what a disk decides: a force takes 0.1 ms on the best, and seconds on one that fails."""

AGES: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0, 86400.0,
)  # fmt: skip
"""Upper bounds in seconds for the age of messages that are read, which may have waited for days."""


class Histogram:
    """Counts of observations. ``counts[i]`` are those above ``bounds[i-1]``, and at or below ``bounds[i]``; the last
    count is for those above all bounds.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` ascend."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all observations."""

    def observe(self, value: float) -> None:
        """Count one; below 0 counts as 0, as after a clock was set back."""
        self.counts[bisect_left(self.bounds, value)] += 1
        if value > 0.0:
            self.total += value
