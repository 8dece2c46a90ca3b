"""A group's state in one partition: its position, the finished offsets above it, and details of unfinished ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from journal.errors import InvalidFrame
from journal.formats.offset_set_bytes import MAX_AHEAD, decode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import MAX_FINISHED_BYTES, MAX_SETTLED, Settled, Unfinished


class Settlement:
    """What there is to say of a partition for a group beside its position, the lowest unfinished offset.

    ``finished`` are offsets above the position. ``unfinished`` has details of some unfinished offsets, none of them
    below the position. Their offsets are kept as a set, too, so that a change costs what it changes, however many there
    are. The methods return the new position.
    """

    __slots__ = ("_detailed", "finished", "unfinished")

    def __init__(
        self, finished: OffsetSet | None = None, unfinished: dict[int, Unfinished] | None = None
    ) -> None:
        self.finished = finished or OffsetSet()
        self.unfinished = unfinished or {}
        self._detailed = OffsetSet()
        for offset in self.unfinished:
            self._detailed.add(offset)

    def __bool__(self) -> bool:
        return bool(self.finished or self.unfinished)

    def copy(self) -> Settlement:
        """Return a settlement that stays as this one is now."""
        copy = Settlement(self.finished.copy())
        copy.unfinished, copy._detailed = self.unfinished.copy(), self._detailed.copy()
        return copy

    def span(self, position: int) -> int:
        """Return how many offsets there are from the position through the highest finished one."""
        return max(self.finished.end - position, 0)

    @property
    def end(self) -> int:
        """The offset after the highest one that is finished or has details; 0 if there is none."""
        return max(self.finished.end, self._detailed.end)

    def details_within(self, first: int, end: int) -> Iterator[Unfinished]:
        """Yield what there is to say of unfinished offsets from ``first`` to below ``end``."""
        for begin, behind in self._detailed.within(first, end).runs():
            for offset in range(begin, behind):
                yield self.unfinished[offset]

    def finish_below(self, offset: int) -> int:
        """Finish everything below an offset that is at or above the position."""
        if self.unfinished:
            self._forget_details(self._detailed.within(0, offset))
        return self._advanced(offset)

    def settle(self, position: int, settled: Settled) -> int:
        """Apply what a record settles to the partition with that position."""
        finished = decode_offsets(settled.finished, settled.base)
        if settled.start > position:
            position = self.finish_below(settled.start)
        self.finished.update(finished)
        if self.unfinished:
            self._forget_details(self._detailed.shared(finished))
        for each in settled.unfinished:
            position = self._reopen(position, each)
        position = self._advanced(position)
        assert self.span(position) <= MAX_AHEAD, (
            f"offsets are finished {self.span(position)} above the position"
        )
        return position

    def _reopen(self, position: int, each: Unfinished) -> int:
        """Make an offset unfinished, and keep its details if they say something."""
        offset = each.offset
        self.finished.discard(offset)
        if offset < position:
            above = max(position, self.end) - offset
            assert above <= MAX_AHEAD, f"offset {offset} would be unfinished, {above} below what is known"
            self.finished.add_range(offset + 1, position)
            position = offset
        if each.has_details:
            assert offset - position < MAX_AHEAD, f"offset {offset} has details, far above what is finished"
            self.unfinished[offset] = each
            self._detailed.add(offset)
        elif self.unfinished.pop(offset, None):
            self._detailed.discard(offset)
        return position

    def _forget_details(self, offsets: OffsetSet) -> None:
        """Drop the details of these offsets, which all have some."""
        for first, end in offsets.runs():
            for offset in range(first, end):
                del self.unfinished[offset]
        self._detailed.difference_update(offsets)

    def _advanced(self, position: int) -> int:
        position = self.finished.missing_from(position)
        self.finished.discard_below(position)
        return position


def check_extent(settled: Iterable[Settled]) -> None:
    """Raise :class:`InvalidFrame` if this is more than a broker puts into one record, or is said in requests only."""
    size = 0
    for number, each in enumerate(settled, 1):
        size += len(each.finished)
        if each.retried:
            raise InvalidFrame(
                "it says that offsets are tried again, and neither when nor how often they were tried"
            )
        if number > MAX_SETTLED or size > MAX_FINISHED_BYTES:
            raise InvalidFrame(
                f"it settles more than {MAX_SETTLED} partitions, or more than {MAX_FINISHED_BYTES} bytes of offsets"
            )
