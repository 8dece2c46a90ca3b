"""The events of a drill, drawn from a seed: who is killed, at which moment, and for how long it stays down."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from examples.shop.drill.moments import Moment

PARTIES = ("web", "web worker", "celery", "celery child", "broker", "postgresql")
HAS_MOMENTS = {"web worker": False, "celery child": True}
"""Whose processes come to moments; whether those are of tasks. All others are killed while one of these is held."""

GAP = 1.0
"""The most seconds between two events, once all parties are at work again."""

DOWN = 0.6
"""The most seconds that a party stays down."""


@dataclass(frozen=True)
class Event:
    """An event: parties are killed at once, ``gap`` seconds after all were at work again, and are down for ``down``.

    With a ``moment`` they are killed while a process is held there: it, if the first is a party that has moments.
    """

    victims: tuple[str, ...]
    moment: Moment | None
    gap: float
    down: float


def draw(seed: int, kills: int, moments: Sequence[Moment] = tuple(Moment)) -> list[Event]:
    """Draw events with so many SIGKILLs in all. Each party is hit before one is hit again, and each of a party's
    moments before one comes again; each fifth event hits several.
    """
    chance = random.Random(f"{seed}/shop")
    turns = {party: _moments(chance, party, moments) for party in PARTIES}
    events: list[Event] = []
    left, cycle = kills, list[str]()
    while left:
        cycle = cycle or chance.sample(PARTIES, len(PARTIES))
        victims = [cycle.pop()]
        if chance.random() < 0.2:
            others = [party for party in PARTIES if party not in victims]
            victims += chance.sample(others, min(chance.choice((1, 1, 2, len(others))), left - 1))
        left -= len(victims)
        moment = next(turns[victims[0]])
        events.append(Event(tuple(victims), moment, chance.uniform(0.0, GAP), chance.uniform(0.0, DOWN)))
    return events


def _moments(chance: random.Random, party: str, moments: Sequence[Moment]) -> Iterator[Moment | None]:
    """Yield the moments of a party, and half as often None, for ever."""
    kind = HAS_MOMENTS.get(party)
    own: list[Moment | None] = [moment for moment in moments if kind in (None, moment.is_of_task)]
    own += [None] * (len(own) // 2)
    while True:
        yield from chance.sample(own, len(own))
