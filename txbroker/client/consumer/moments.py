"""The moments that a consumer reads: the rest of one is read before messages of a later one.

An answer to a fetch is of one moment. It may end early in a partition: because a segment ends there, the disk has to be
waited for, or other sessions want their turn. Then the next fetch asks for the rest only. So a consumer that keeps up
gets every transaction whole before anything that was committed after it became visible. ``max_bytes`` ends a moment,
too: so a long backlog in one partition does not delay new messages in the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from txbroker.client.core.positions import Position
from txbroker.wire.messages import FetchedPartition


class Wanted(NamedTuple):
    """A fetch to send: ``positions`` as :class:`Fetch` has them, and its size. ``is_new``: it begins a new moment.
    ``is_part``: there are more positions than one fetch may have, so they take turns.
    """

    positions: list[tuple[int, int, int]]
    max_bytes: int
    is_new: bool
    is_part: bool


class Moments:
    """Which moment is read. The first is that of the first fetch; without ``follow`` there is no other."""

    def __init__(self, follow: bool, max_bytes: int) -> None:
        self._follow = follow
        self._max_bytes = max_bytes
        self._room = max_bytes
        self._number = 0
        self._turn = 0

    def _chosen(self, positions: Collection[Position]) -> tuple[list[Position], bool]:
        free = [each for each in positions if not (each.left.blocks or each.ended or each.rests)]
        rest = [position for position in free if position.moment >= 0 and position.next < position.end]
        is_new = not self._number or (self._follow and (not rest or self._room <= 0))
        return (free if is_new else rest), is_new

    def wanted(self, positions: Collection[Position], most: int) -> Wanted:
        """Return what to ask for next: the rest of the moment that is being read, or a new one; of ``most`` positions
        at most.
        """
        chosen, is_new = self._chosen(positions)
        is_part = len(chosen) > most
        if chosen:
            self._turn = (self._turn + (most if is_part else 1)) % len(chosen)
            chosen = chosen[self._turn :] + chosen[: self._turn]  # so that no position is always served last
        room = self._room if self._follow and not is_new else self._max_bytes
        # Without ``follow`` it is never asked for more than was there: so a fetch is answered that has come to the end,
        # though a filter has left out all that there is.
        has_end = not (is_new and self._follow)
        asked = [(each.number, each.next, each.end if has_end else 0) for each in chosen[:most]]
        return Wanted(asked, room, is_new, is_part)

    def begin(self, positions: dict[int, Position], parts: Iterable[FetchedPartition]) -> None:
        """Begin a new moment: note where the partitions ended. Partitions that an interrupt left out are in the next
        one.
        """
        self._number += 1
        self._room = self._max_bytes
        for part in parts:
            if part.error != "UnknownPartition":
                position = positions[part.partition]
                position.end = part.high_watermark
                position.moment = self._number

    def end(self) -> None:
        """Begin a new moment with the next fetch, though there is more of the present one; only with ``follow``."""
        self._room = 0

    def took(self, size: int) -> None:
        """Count ``size`` bytes of the moment as received."""
        self._room -= size

    def leave(self, position: Position) -> None:
        """Leave a position out that cannot be read, so that the others go on. The next moment has it again."""
        if self._follow:
            position.moment = -1

    def is_read(self, positions: Collection[Position]) -> bool:
        """Return whether all of these positions have been read up to the moment's end."""
        return all(
            each.moment == self._number and each.next >= each.end and not each.left for each in positions
        )
