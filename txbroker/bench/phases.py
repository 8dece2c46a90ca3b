"""Where a request spent its life, from when it was to be sent to when its answer was here."""

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
"""In the order in which they are told. The network is what a round trip took beside the broker's own times."""


class Phase(msgspec.Struct, frozen=True):
    """One row: the share of all the time that requests took together, mean and percentiles in µs.

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
        # Two clocks that are rounded: what they disagree about is less than what they can tell.
        network = max(0, round_trip - sum(inside))
        for histogram, micros in zip(self._by_phase.values(), (queued, network, *inside), strict=True):
            histogram.record(micros)

    def packed(self) -> dict[str, Packed]:
        """All of it, small."""
        return {phase: histogram.packed() for phase, histogram in self._by_phase.items()}

    def add(self, packed: dict[str, Packed]) -> None:
        """Add what another process counted."""
        for phase, part in packed.items():
            self._by_phase[phase].add(part)

    def rows(self) -> list[Phase]:
        """All phases with their shares; nothing if no request told."""
        whole = sum(histogram.sum for histogram in self._by_phase.values())
        rows = []
        for phase, histogram in self._by_phase.items():
            told = histogram.percentiles()
            if told is not None:
                rows.append(Phase(phase, histogram.sum / max(whole, 1), told.mean, told.p50, told.p99))
        return rows
