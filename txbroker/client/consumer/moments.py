"""Moment after moment of some partitions: the rest of one is read before what came later.

An answer to a fetch is of one moment. Where it ends early in a partition, because a segment ends there, the disk has to
be waited for, or others want their turn, the next fetch asks for the rest alone: so who keeps up is given every
transaction whole before anything that was committed after it was seen. ``max_bytes`` of a moment end it, too: a long
backlog in one partition does not keep what is new in the others waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from txbroker.client.core.positions import Position
from txbroker.wire.messages import FetchedPartition


class Wanted(NamedTuple):
    """What to fetch: ``positions`` as :class:`Fetch` has them, and how much. ``is_new``: of a new moment."""

    positions: list[tuple[int, int, int]]
    max_bytes: int
    is_new: bool


class Moments:
    """Which moment is read. The first is that of the first fetch; without ``follow`` there is no other."""

    def __init__(self, follow: bool, max_bytes: int) -> None:
        self._follow = follow
        self._max_bytes = max_bytes
        self._room = max_bytes
        self._number = 0
        self._turn = 0

    def _chosen(self, positions: Collection[Position]) -> tuple[list[Position], bool]:
        free = [position for position in positions if not position.pending]
        rest = [position for position in free if position.moment >= 0 and position.next < position.end]
        is_new = not self._number or (self._follow and (not rest or self._room <= 0))
        return (free if is_new else rest), is_new

    def all_held(self, positions: Collection[Position]) -> bool:
        """Whether there is nothing to ask for, as undecided transactions hold the positions of what is left."""
        return not self._chosen(positions)[0]

    def wanted(self, positions: Collection[Position]) -> Wanted:
        """What to ask for next: what is left of the moment that is being read, or of a new one."""
        chosen, is_new = self._chosen(positions)
        if chosen:
            self._turn = (self._turn + 1) % len(chosen)
            chosen = chosen[self._turn :] + chosen[: self._turn]  # so that none is always served last
        room = self._room if self._follow and not is_new else self._max_bytes
        return Wanted([(each.number, each.next, 0 if is_new else each.end) for each in chosen], room, is_new)

    def begin(self, positions: dict[int, Position], parts: Iterable[FetchedPartition]) -> None:
        """A new one: note where the partitions ended. Interrupted, those that are not noted are in the next."""
        self._number += 1
        self._room = self._max_bytes
        for part in parts:
            if part.error != "UnknownPartition":
                position = positions[part.partition]
                position.end = part.high_watermark
                position.moment = self._number

    def took(self, size: int) -> None:
        """So many bytes of it have come."""
        self._room -= size

    def leave(self, position: Position) -> None:
        """It cannot be read: that must not keep the others from going on. The next moment has it again."""
        if self._follow:
            position.moment = -1

    def is_read(self, positions: Collection[Position]) -> bool:
        """Whether all has been read that there was at the moment, in all of these."""
        return all(each.moment == self._number and each.next >= each.end for each in positions)
