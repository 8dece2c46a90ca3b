"""What is done to the broker and to its clients, in which order: drawn from the seed before the drill begins."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from txbroker.drill.broker.kill_points import POINTS, RECOVERY

RANDOM: Final = "random"
"""Stands among the points for a moment by chance."""

MOST_CALLS: Final = 40
"""Of a start, at most the so-manieth change is killed at; it has about that many."""


class Kind(enum.Enum):
    """What is done."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"
    CLIENT = "client kill"


@dataclass(frozen=True)
class Event:
    """One thing that is done. ``gap``: how long after the one before, 1 being the mean of all.

    ``point`` is where the broker dies (RANDOM: at once), the ``nth`` time it gets there. ``client`` is a number to
    choose a client by. ``length`` stretches a pause.
    """

    kind: Kind
    gap: float
    point: str = RANDOM
    nth: int = 1
    client: int = 0
    length: float = 1.0


def draw(seed: int, kills: int, points: Sequence[str]) -> list[Event]:
    """All events of a drill with so many SIGKILLs of the broker. Every point comes before one comes again.

    Beside the kills there are pauses, stops on request and kills of clients, at least one of each.
    """
    chance = random.Random(f"{seed}/schedule")
    found = list(_kills(chance, kills, points))
    others = [Kind.PAUSE] * max(1, kills // 10) + [Kind.STOP] * max(1, kills // 15)
    others += [Kind.CLIENT] * max(1, kills // 2)
    found += [
        Event(kind, _gap(chance), client=chance.randrange(1 << 16), length=chance.uniform(1.2, 2.0))
        for kind in others
    ]
    chance.shuffle(found)
    return found


def _kills(chance: random.Random, kills: int, points: Sequence[str]) -> Iterator[Event]:
    """A kill during recovery takes two: the one that it recovers from, and its own."""
    left, cycle = kills, list[str]()
    while left:
        cycle = cycle or chance.sample(points, len(points))
        point = cycle.pop()
        if point == RECOVERY and left == 1:
            point = RANDOM
        nth = chance.randint(1, MOST_CALLS) if point == RECOVERY else chance.choice((1, 1, 2, 3))
        yield Event(Kind.KILL, _gap(chance), point, nth)
        left -= 2 if point == RECOVERY else 1


def _gap(chance: random.Random) -> float:
    return chance.uniform(0.3, 1.7)


def all_points() -> list[str]:
    """Every named point, and as many moments by chance."""
    return [*POINTS, *[RANDOM] * len(POINTS)]
