"""The schedule of a drill, drawn from the seed before it begins: what is done to the broker and clients, in order."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from txbroker.drill.broker.kill_points import POINTS, RECOVERY

RANDOM: Final = "random"
"""The entry among the points for a random moment."""

MOST_CALLS: Final = 40
"""The highest number of a change in a start that a drill kills at; a start makes about that many changes."""


class Kind(enum.Enum):
    """The kind of an event."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"
    CLIENT = "client kill"
    CLIENT_PAUSE = "client pause"


@dataclass(frozen=True)
class Event:
    """One event of the schedule. ``gap`` is the time since the event before, 1 being the mean of all gaps.

    ``point`` is where the broker is killed (RANDOM: at once), the ``nth`` time that it is reached. ``client`` is a
    number that chooses a client, of the ``role`` if that is not empty. ``length`` stretches a pause.
    """

    kind: Kind
    gap: float
    point: str = RANDOM
    nth: int = 1
    client: int = 0
    role: str = ""
    length: float = 1.0


def draw(seed: int, kills: int, points: Sequence[str], role: str = "") -> list[Event]:
    """Draw all events of a drill with so many SIGKILLs of the broker. Every point comes before one is repeated.

    Besides the kills there are pauses, stops on request and kills of clients, at least one of each. Clients of the
    ``role``, if there is one, are killed as often again as clients of all roles, and paused as often.
    """
    chance = random.Random(f"{seed}/schedule")
    found = list(_kills(chance, kills, points))
    others = [Kind.PAUSE] * max(1, kills // 10) + [Kind.STOP] * max(1, kills // 15)
    others += [Kind.CLIENT] * max(1, kills // 2)
    found += [_other(chance, kind) for kind in others]
    if role:
        more = [Kind.CLIENT, Kind.CLIENT_PAUSE] * max(1, kills // 2)
        found += [_other(chance, kind, role) for kind in more]
    chance.shuffle(found)
    return found


def _other(chance: random.Random, kind: Kind, role: str = "") -> Event:
    gap, client = _gap(chance), chance.randrange(1 << 16)
    return Event(kind, gap, client=client, role=role, length=chance.uniform(1.2, 2.0))


def _kills(chance: random.Random, kills: int, points: Sequence[str]) -> Iterator[Event]:
    """Yield the kills. A kill during recovery counts as two: the kill that the broker recovers from, and its own."""
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
    """Return every named point, and as many random moments."""
    return [*POINTS, *[RANDOM] * len(POINTS)]
