"""The limits of a stream's batch, set by its options: of messages, of bytes, and lower limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from spark.source.logs import Log, Logs
from spark.source.options import ReadOptions
from spark.source.rate_limit import limited
from spark.source.stream_offset import Place, Position


class BatchLimits:
    """The limits. ``clock`` returns seconds that only grow."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = options.max_offsets
        self._most_bytes = options.max_bytes
        self._least = options.min_offsets
        self._delay = options.max_delay / 1e6
        self._clock = clock
        self._due = 0.0
        """The time at which a batch comes however small; the first one comes at once."""

    @property
    def default(self) -> ReadLimit:
        """Return the limit for Spark, which hands it back, or :class:`ReadAllAvailable` where no limit is to hold."""
        if self._most is not None:
            return ReadMaxRows(self._most)
        if self._most_bytes is not None:
            return ReadMaxBytes(self._most_bytes)
        return ReadAllAvailable() if self._least is None else ReadMinRows(self._least)

    def ahead(
        self,
        logs: Logs,
        ends: Mapping[Place, Log],
        reached: Mapping[Place, Position],
        limit: ReadLimit,
        may_wait: bool,
    ) -> dict[Place, Position]:
        """Return how far to go from the ``reached`` positions, in each log to its end at most."""
        behind = {place: ends[place].end - position.next for place, position in reached.items()}
        if isinstance(limit, ReadAllAvailable):
            return _moved(reached, behind)
        if may_wait and self._waits(sum(behind.values())):
            return dict(reached)
        seed = sum(position.next for position in reached.values())  # a different one for each batch
        if self._most is not None:
            behind = limited(behind, self._most, seed)
        if self._most_bytes is not None:
            behind = _within(logs, ends, reached, behind, self._most_bytes, seed)
        return _moved(reached, behind)

    def _waits(self, messages: int) -> bool:
        if self._least is None:
            return False
        now = self._clock()
        if messages < self._least and (now < self._due or not messages):
            return True
        self._due = now + self._delay
        return False


def _moved(reached: Mapping[Place, Position], by: Mapping[Place, int]) -> dict[Place, Position]:
    return {place: position._replace(next=position.next + by[place]) for place, position in reached.items()}


def _within(
    logs: Logs,
    ends: Mapping[Place, Log],
    reached: Mapping[Place, Position],
    behind: Mapping[Place, int],
    most: int,
    seed: int,
) -> dict[Place, int]:
    """Return how many of the messages have about ``most`` bytes, by the known places; at least one."""
    points = {
        place: logs.points(ends[place], reached[place].next, reached[place].next + count)
        for place, count in behind.items()
        if count
    }
    low, sizes = dict[Place, float](), dict[Place, int]()
    for place, known in points.items():
        first = reached[place].next
        low[place], high = np.interp([first, first + behind[place]], known.offsets, known.bytes)
        sizes[place] = max(int(high - low[place]), behind[place])
    if sum(sizes.values()) <= most:
        return dict(behind)
    shares = limited(sizes, most, seed)
    found = dict.fromkeys(behind, 0)
    for place, known in points.items():
        upto = np.interp(low[place] + shares[place], known.bytes, known.offsets)
        found[place] = min(int(upto) - reached[place].next, behind[place])
    if not any(found.values()):
        found[max(shares, key=lambda place: shares[place])] = 1
    return found
