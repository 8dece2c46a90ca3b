"""A page in equal parts, for what is smaller than a page.

As Netty's ``PoolSubpage`` (and the runs of small objects of jemalloc): a bit for each part, here all of one integer.
"""

from __future__ import annotations

from journal.buffers.chunk import Chunk
from journal.buffers.size_classes import PAGE, SIZES


class Subpage:
    """Parts of one class, ``all`` of them and those ``free`` as bits. ``start`` is where the page is in the chunk."""

    __slots__ = ("_size", "all", "chunk", "free", "number", "start")

    def __init__(self, chunk: Chunk, page: int, number: int) -> None:
        self.chunk = chunk
        self.number = number
        self.start = page * PAGE
        self._size = SIZES[number]
        self.all = self.free = (1 << (PAGE // self._size)) - 1

    def take(self) -> int:
        """Give out the lowest free part; return its position in the chunk's memory. There must be one."""
        lowest = self.free & -self.free
        self.free ^= lowest
        return self.start + (lowest.bit_length() - 1) * self._size

    def give(self, position: int) -> None:
        """Take the part at a position back."""
        self.free |= 1 << (position - self.start) // self._size

    @property
    def free_bytes(self) -> int:
        """What is not given out of the page, with what the parts do not fill of it."""
        return PAGE - (self.all ^ self.free).bit_count() * self._size
