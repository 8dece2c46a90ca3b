"""Which messages of one priority of a queue are ready, and how many bytes their bodies have."""

from __future__ import annotations

from journal.offset_set import OffsetSet
from txbroker.queues.body_sizes import BodySizes


class Ready:
    """Ready are all messages from offset ``frontier`` on to the end of the log, and those of ``returned``, which lie
    below.

    ``size`` is how many bytes the bodies of those have that are measured; 0 without ``sizes``.
    """

    __slots__ = ("frontier", "returned", "size", "sizes")

    def __init__(self, frontier: int, returned: OffsetSet, sizes: BodySizes | None) -> None:
        """None of those that are ready is measured yet."""
        self.frontier, self.returned, self.sizes = frontier, returned, sizes
        self.size = 0

    def measured(self, sizes: list[int]) -> None:
        """Note how large the bodies of the next messages are."""
        assert self.sizes is not None, "they are measured where their bytes are bounded"
        first = self.sizes.end
        self.sizes.add(sizes)
        end = self.sizes.end
        self.size += self.sizes.sum(max(first, self.frontier), end)
        if first < self.frontier and self.returned:
            self.size += self._size_of(self.returned.within(first, end))

    def put(self, first: int, end: int) -> None:
        """Make messages ready again; those from the frontier on are so already."""
        end = min(end, self.frontier)
        if first >= end:
            return
        if self.sizes is not None:
            self.size += self.sizes.sum(first, end) - self._size_of(self.returned.within(first, end))
        self.returned.add_range(first, end)

    def remove(self, offsets: OffsetSet) -> None:
        """Take messages out that were returned; others of these are passed over."""
        if self.sizes is not None and self.returned:
            self.size -= self._size_of(self.returned.shared(offsets))
        self.returned.difference_update(offsets)

    def settled(self, finished: OffsetSet, held: OffsetSet, position: int) -> None:
        """Take out what is finished, with all below a position, or is held by transactions."""
        self.remove(finished)
        self.remove(held)
        if self.returned and self.returned.first < position:
            self.remove(self.returned.within(0, position))
        self.advance(max(position, finished.missing_from(self.frontier)))
        if self.sizes is not None:
            self.sizes.skip(position)
            self.sizes.forget_below(position)

    def advance(self, frontier: int) -> None:
        """Take all messages out between the frontier and a new one, unless that is below."""
        if frontier > self.frontier:
            if self.sizes is not None:
                self.size -= self.sizes.sum(self.frontier, frontier)
            self.frontier = frontier

    def _size_of(self, offsets: OffsetSet) -> int:
        assert self.sizes is not None, "they are measured where their bytes are bounded"
        return sum([self.sizes.sum(first, end) for first, end in offsets.runs()])
