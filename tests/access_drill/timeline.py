"""What was so when: standings, each with when it may have begun, and when the one before had surely ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec

from tests.access_drill.rules_model import Standing


class Era(msgspec.Struct):
    """A standing that may hold since ``began``, and surely held at ``settled`` (both on the monotonic clock)."""

    standing: Standing
    began: float
    settled: float = math.inf


class Timeline:
    """All standings of a drill in their order. One thread changes it; it is read when the drill is over."""

    def __init__(self, standing: Standing, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.eras = [Era(standing, -math.inf, -math.inf)]

    @property
    def last(self) -> Standing:
        """The newest standing."""
        return self.eras[-1].standing

    def begin(self, standing: Standing) -> None:
        """Note that a change to this is about to be asked for."""
        assert self.eras[-1].settled < math.inf, "one change at a time"
        self.eras.append(Era(standing, self._clock()))

    def settle(self) -> None:
        """Note that the change was confirmed."""
        self.eras[-1].settled = self._clock()

    def between(self, begin: float, end: float) -> Iterator[Standing]:
        """Yield each standing that may have held at a moment from ``begin`` to ``end``."""
        ends = [era.settled for era in self.eras[1:]] + [math.inf]
        for era, until in zip(self.eras, ends, strict=True):
            if era.began <= end and until >= begin:
                yield era.standing
