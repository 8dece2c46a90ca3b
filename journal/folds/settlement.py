"""A group's state in one partition: its position, the finished offsets above it, and details of unfinished ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from journal.constants import KIB
from journal.errors import InvalidFrame
from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets
from journal.formats.record import Settled, Unfinished
from journal.offset_set import OffsetSet

MAX_SETTLED: Final = 1024
"""Most partitions that one record settles; with the next bound it bounds what a record, also a forged one, can cost."""
MAX_FINISHED_BYTES: Final = 64 * KIB
"""Most bytes of sets of finished offsets in one record: the worst of them are read in 25 ms."""


class Settlement:
    """What there is to say of a partition for a group beside its position, the lowest unfinished offset.

    ``finished`` are offsets above the position. ``unfinished`` has details of some unfinished offsets, none of them
    below the position. The methods return the new position.
    """

    __slots__ = ("finished", "unfinished")

    def __init__(
        self, finished: OffsetSet | None = None, unfinished: dict[int, Unfinished] | None = None
    ) -> None:
        self.finished = finished or OffsetSet()
        self.unfinished = unfinished or {}

    def __bool__(self) -> bool:
        return bool(self.finished or self.unfinished)

    def copy(self) -> Settlement:
        """Return a settlement that stays as this one is now."""
        return Settlement(self.finished.copy(), self.unfinished.copy())

    def span(self, position: int) -> int:
        """Return how many offsets there are from the position through the highest finished one."""
        return max(self.finished.end - position, 0)

    def finish_below(self, offset: int) -> int:
        """Finish everything below an offset that is at or above the position."""
        if self.unfinished:
            self.unfinished = {at: each for at, each in self.unfinished.items() if at >= offset}
        return self._advanced(offset)

    def settle(self, position: int, settled: Settled) -> int:
        """Apply what a record settles to the partition with that position."""
        finished = decode_offsets(settled.finished, settled.base)
        if settled.start > position:
            position = self.finish_below(settled.start)
        self.finished.update(finished)
        if self.unfinished:
            self._forget_details(finished)
        for each in settled.unfinished:
            position = self._reopen(position, each)
        position = self._advanced(position)
        assert self.span(position) <= MAX_SPAN, (
            f"offsets are finished {self.span(position)} above the position"
        )
        return position

    def _reopen(self, position: int, each: Unfinished) -> int:
        """Make an offset unfinished, and keep its details if they say something."""
        offset = each.offset
        self.finished.discard(offset)
        if offset < position:
            highest = max(position, self.finished.end)
            assert highest - offset <= MAX_SPAN, (
                f"offset {offset} would be unfinished, {highest - offset} below what is finished"
            )
            self.finished.add_range(offset + 1, position)
            position = offset
        if each.attempts or each.due or each.reason:
            self.unfinished[offset] = each
        else:
            self.unfinished.pop(offset, None)
        return position

    def _forget_details(self, finished: OffsetSet) -> None:
        if len(finished) <= len(self.unfinished):
            for first, end in finished.runs():
                for offset in range(first, end):
                    self.unfinished.pop(offset, None)
        else:
            for offset in [each for each in self.unfinished if each in finished]:
                del self.unfinished[offset]

    def _advanced(self, position: int) -> int:
        position = self.finished.missing_from(position)
        self.finished.discard_below(position)
        return position


def check_extent(settled: Iterable[Settled]) -> None:
    """Raise :class:`InvalidFrame` if this is more than a broker puts into one record."""
    size = 0
    for number, each in enumerate(settled, 1):
        size += len(each.finished)
        if number > MAX_SETTLED or size > MAX_FINISHED_BYTES:
            raise InvalidFrame(
                f"it settles more than {MAX_SETTLED} partitions, or more than {MAX_FINISHED_BYTES} bytes of offsets"
            )
