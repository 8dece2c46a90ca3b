"""The offsets of groups that prepared transactions hold: what another one may not touch, and who holds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from journal.formats.offset_set_bytes import decode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, PartitionOffset, Settled
from journal.transaction_states import TransactionNumber

EVERYTHING: Final = 1 << 63
"""All offsets lie below it."""

Pair = tuple[str, int]
"""A group and a partition."""


class Reach(NamedTuple):
    """What some entries touch of a group and a partition: all offsets below ``below``, and ``offsets``.

    ``details`` are those that get details.
    """

    below: int
    offsets: OffsetSet
    details: OffsetSet


def reach_of(position: int | None, offsets: Sequence[PartitionOffset], settled: Iterable[Settled]) -> Reach:
    """Return what entries for one group and partition touch, where the group has that position."""
    touched, details, start = OffsetSet(), OffsetSet(), 0
    for each in settled:
        touched.update(decode_offsets(each.finished, each.base))
        for unfinished in each.unfinished:
            touched.add(unfinished.offset)
            if unfinished.has_details:
                details.add(unfinished.offset)
        start = max(start, each.start)
        if not touched:
            touched.add(each.base)  # it says nothing; so that nobody takes the group away meanwhile
    if position is None:
        below = EVERYTHING
    elif not offsets:
        below = start
    elif len(offsets) == 1 and not settled and offsets[0].offset > position:
        below = offsets[0].offset
    else:
        below = EVERYTHING
    return Reach(below, touched, details)


def by_pair(positions: Iterable[GroupPositions]) -> dict[Pair, tuple[list[PartitionOffset], list[Settled]]]:
    """Return the entries by group and partition."""
    found: dict[Pair, tuple[list[PartitionOffset], list[Settled]]] = {}
    for each in positions:
        for offset in each.offsets:
            found.setdefault((each.group, offset.partition), ([], []))[0].append(offset)
        for settled in each.settled:
            found.setdefault((each.group, settled.partition), ([], []))[1].append(settled)
    return found


class Held:
    """What prepared transactions hold of one group and partition together.

    No two of them hold the same offset; so at most one, the ``mover``, holds all offsets below one.
    """

    __slots__ = ("below", "details", "holders", "mover", "offsets")

    def __init__(self) -> None:
        self.below = 0
        self.mover: TransactionNumber | None = None
        self.offsets, self.details = OffsetSet(), OffsetSet()
        self.holders: dict[TransactionNumber, tuple[int, int]] = {}
        """Those that hold something, in the order in which they were prepared, and between which offsets."""

    def take(self, number: TransactionNumber, reach: Reach) -> None:
        """Let a transaction hold what it reaches."""
        if not reach.below and not reach.offsets:
            return
        if reach.below:
            self.below, self.mover = reach.below, number
        self.offsets.update(reach.offsets)
        self.details.update(reach.details)
        self.holders[number] = (reach.offsets.first, reach.offsets.end) if reach.offsets else (0, 0)

    def release(self, number: TransactionNumber, reach: Reach) -> None:
        """Take back what :meth:`take` did."""
        if self.mover == number:
            self.below, self.mover = 0, None
        self.offsets.difference_update(reach.offsets)
        self.details.difference_update(reach.details)
        self.holders.pop(number, None)

    def candidates(self, offset: int) -> list[TransactionNumber]:
        """Return those that may hold that single offset."""
        if offset not in self.offsets:
            return []
        return [number for number, (first, end) in self.holders.items() if first <= offset < end]

    def reaches_below(self, offset: int) -> bool:
        """Return whether an offset below this one is held."""
        return bool(self.below) or (bool(self.offsets) and self.offsets.first < offset)

    def touched(self, reach: Reach) -> int | None:
        """Return the lowest held offset that others would touch, of whom no more than one moves the position."""
        found = [self.offsets.common(reach.offsets)]
        if reach.below and self.offsets and self.offsets.first < reach.below:
            found.append(self.offsets.first)
        if reach.offsets and reach.offsets.first < self.below:
            found.append(reach.offsets.first)
        return min([each for each in found if each is not None], default=None)
