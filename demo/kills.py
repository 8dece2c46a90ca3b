"""The plan of kills: days and phases are drawn from a seed, the moments depend on real timers and signals."""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Phase(enum.Enum):
    """The phases of a day's transaction at which a kill can be started."""

    ADDING = "adding rows"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"


@dataclass(frozen=True)
class Kill:
    """A planned kill: it is set off when ``phase`` of the day begins.

    ``fraction`` is how far into the phase it should hit, 0 to 1 of what the phase has usually taken so far on
    this machine; it may well come late. One that is due between prepare and commit hits at once.
    """

    day: str
    phase: Phase
    fraction: float

    def delay(self, usual: float) -> float:
        """Return the seconds from the beginning of the phase to the signal, if the phase usually takes ``usual``."""
        return 0.0 if self.phase is Phase.PREPARED else self.fraction * usual


def draw(seed: int, days: Sequence[str], count: int) -> Mapping[str, Kill]:
    """Draw ``count`` kills on different days, by day. Every phase is hit before one is hit again.

    The first tenth of the days is left alone: it shows how long the phases take.
    """
    chance = random.Random(seed)
    candidates = days[len(days) // 10 :]
    chosen = chance.sample(candidates, min(count, len(candidates)))
    phases: list[Phase] = []
    while len(phases) < len(chosen):
        phases += chance.sample(list(Phase), len(Phase))
    return {
        day: Kill(day, phase, chance.uniform(0.0, 1.0)) for day, phase in zip(chosen, phases, strict=False)
    }


class UsualDurations:
    """The usual duration of each phase: a running mean in seconds."""

    def __init__(self) -> None:
        self._means: dict[Phase, float] = {}

    def add(self, phase: Phase, seconds: float) -> None:
        """Count a duration; the newest one weighs a tenth."""
        mean = self._means.get(phase, seconds)
        self._means[phase] = mean + (seconds - mean) / 10

    def of(self, phase: Phase) -> float:
        """Return the mean; a millisecond for a phase that has not been seen."""
        return self._means.get(phase, 0.001)
