"""The time of a request is divided into phases, from when it was to be sent to when its answer had arrived."""

from __future__ import annotations

import msgspec

from txbroker.bench.histogram import Histogram, Packed
from txbroker.wire.messages import Times

PHASES = (
    "client queue",
    "network",
    "judge",
    "wait for group",
    "write",
    "force",
    "publish",
    "answer",
)
"""The phases in the order in which they are shown. The network is what a round trip took beyond the broker's own times.
"""


class Phase(msgspec.Struct, frozen=True):
    """One phase as a row: its share of the total time of all requests, and its mean and percentiles in µs.

    The means add up to the mean of the whole; percentiles do not.
    """

    phase: str
    share: float
    mean: float
    p50: int
    p99: int


class Phases:
    """The phases of all requests of one kind."""

    def __init__(self) -> None:
        self._by_phase = {phase: Histogram() for phase in PHASES}

    def record(self, queued: int, round_trip: int, times: Times) -> None:
        """Count a request that waited ``queued`` µs in the client and was answered ``round_trip`` µs later."""
        inside = msgspec.structs.astuple(times)
        # Both clocks are rounded, so a difference below zero means nothing.
        network = max(0, round_trip - sum(inside))
        for histogram, micros in zip(self._by_phase.values(), (queued, network, *inside), strict=True):
            histogram.record(micros)

    def packed(self) -> dict[str, Packed]:
        """Return the counts for another process, packed."""
        return {phase: histogram.packed() for phase, histogram in self._by_phase.items()}

    def add(self, packed: dict[str, Packed]) -> None:
        """Add what another process counted."""
        for phase, part in packed.items():
            self._by_phase[phase].add(part)

    def rows(self) -> list[Phase]:
        """Return all phases with their shares; no rows if no request was timed."""
        whole = sum(histogram.sum for histogram in self._by_phase.values())
        rows = []
        for phase, histogram in self._by_phase.items():
            told = histogram.percentiles()
            if told is not None:
                rows.append(Phase(phase, histogram.sum / max(whole, 1), told.mean, told.p50, told.p99))
        return rows
