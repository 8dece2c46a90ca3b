"""HDR histograms of latencies: they can be merged, and lose nothing among the greatest values.

The package ``hdrhistogram`` is not installed with txbroker: pip install hdrhistogram.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from txbroker.errors import Misuse

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

LONGEST = 3_600_000_000
"""The greatest value in µs: an hour. Longer latencies are counted as that."""

DIGITS = 3
"""Significant digits: a percentile is within 0.1 % of the true value."""

DISTINCT = 1 << 20
"""The most different values that wait for being put into the histogram."""


class Percentiles(msgspec.Struct, frozen=True):
    """The figures shown of a histogram, in µs."""

    count: int
    mean: float
    p50: int
    p90: int
    p99: int
    p999: int
    max: int


def check_package() -> None:
    """Raise :class:`Misuse`, naming what to install, where the package is missing."""
    try:
        import hdrh.histogram  # noqa: F401
    except ImportError as error:
        raise Misuse(
            f"the package hdrhistogram is missing ({error}); nothing was measured. Install it with: "
            "pip install hdrhistogram"
        ) from None


def _new() -> HdrHistogram:
    from hdrh.histogram import HdrHistogram

    return HdrHistogram(1, LONGEST, DIGITS)


class Histogram:
    """A histogram of values in µs. Counting a value costs 0.1 µs; the 1.3 µs that the package needs are spent when
    figures are asked for.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._histogram = _new()
        self.sum = 0
        self.count = 0

    def record(self, micros: int, times: int = 1) -> None:
        """Count a value."""
        counts = self._counts
        counts[micros] = counts.get(micros, 0) + times
        self.sum += micros * times
        self.count += times
        if len(counts) > DISTINCT:
            self._fold()

    def _fold(self) -> None:
        record = self._histogram.record_value
        for micros, times in self._counts.items():
            record(min(max(micros, 1), LONGEST), times)  # 0 is below what the histogram can count
        self._counts = {}

    def packed(self) -> Packed:
        """Return the counts for another process."""
        self._fold()
        return Packed(self._histogram.encode().decode("ascii"), self.sum, self.count)

    def add(self, packed: Packed) -> None:
        """Add the counts of another histogram."""
        self._histogram.decode_and_add(packed.hdr.encode("ascii"))
        self.sum += packed.sum
        self.count += packed.count

    def percentiles(self) -> Percentiles | None:
        """Return the figures; None if nothing was counted."""
        if not self.count:
            return None
        self._fold()
        found: Mapping[float, Any] = self._histogram.get_percentile_to_value_dict([50.0, 90.0, 99.0, 99.9])
        p50, p90, p99, p999 = (int(found[each]) for each in (50.0, 90.0, 99.0, 99.9))
        # The package returns the greatest value that it cannot tell from the recorded one.
        greatest = int(self._histogram.get_max_value())
        return Percentiles(self.count, self.sum / self.count, p50, p90, p99, p999, greatest)


class Packed(msgspec.Struct, frozen=True):
    """A histogram as text: HdrHistogram's V2 encoding in base64, read by its tools in other languages, too."""

    hdr: str
    sum: int
    count: int
