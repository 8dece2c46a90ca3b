"""A page in equal parts, for allocations that are smaller than a page.

It follows Netty's ``PoolSubpage`` (and jemalloc's runs of small objects): a bit for each part, here all in one integer.
"""

from __future__ import annotations

from journal.buffers.chunk import Chunk
from journal.buffers.size_classes import PAGE, SIZES


class Subpage:
    """Parts of one class: ``all`` of them and those that are ``free``, as bits. ``start`` is the page's position in the
    chunk.
    """

    __slots__ = ("_size", "all", "chunk", "free", "number", "start")

    def __init__(self, chunk: Chunk, page: int, number: int) -> None:
        self.chunk = chunk
        self.number = number
        self.start = page * PAGE
        self._size = SIZES[number]
        self.all = self.free = (1 << (PAGE // self._size)) - 1

    def take(self) -> int:
        """Allocate the lowest free part; return its position in the chunk's memory. There must be one."""
        lowest = self.free & -self.free
        self.free ^= lowest
        return self.start + (lowest.bit_length() - 1) * self._size

    def give(self, position: int) -> None:
        """Free the part at a position."""
        self.free |= 1 << (position - self.start) // self._size

    @property
    def free_bytes(self) -> int:
        """Return the bytes of the page that are not allocated, including the rest that no part covers."""
        return PAGE - (self.all ^ self.free).bit_count() * self._size
