"""The scene of crash windows: work is cut before each of its operations in turn, and started again."""

from __future__ import annotations

from journal.constants import KIB
from journal.testing import PowerCut, cut_power_at
from tests.support.engine_room import Room

BIG = b"v" * (40 * KIB)


ENDS = [(0, 0.0), (1, 1.0), *((seed, None) for seed in range(2, 8))]


"""(seed, survival): nothing survives, everything, or parts of what is unforced."""


def at_every_operation(prepare, act, twice=False, kind=Room):
    """Yield (what was acknowledged, the room, a start after the cut), for every cut and end."""
    for nth in range(1, 400):
        room = kind()
        prepare(room)
        done: list[str] = []
        room.plan.on_operation = cut_power_at(nth)
        try:
            act(room, done)
        except PowerCut:
            cut = True
        else:
            cut = False
        room.plan.on_operation = None
        for seed, survive in ENDS:
            after = room.crashed(seed, survive)
            yield done, room, after.crashed(seed, 0.0) if twice else after
        yield done, room, room.killed()
        if not cut:
            assert nth > 2, "the scene changes nothing"
            return
    raise AssertionError("the scene does not end")


def topics(room):
    room.topic()
    room.send(b"before")
