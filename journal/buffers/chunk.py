"""A chunk: 16 MiB from the system as 2,048 pages, allocated in runs that a buddy tree splits and merges.

The buddy system is Knowlton's ("A Fast Storage Allocator", CACM 8 (10), 1965). A chunk's shape (depths 0 to 11, a run's
length by its depth) is that of Netty's ``PoolChunk``, which walks a heap of depths. Here the free nodes of a depth are
the bits of one integer, so no walk is needed to find the smallest free node that is large enough. Of several nodes the
lowest is taken, as in jemalloc, so that a chunk empties from its top.
"""

from __future__ import annotations

import mmap
from typing import Final

from journal.buffers.size_classes import CHUNK, DEEPEST, PAGE, PAGES

NONE: Final = -1

_RUNS: Final = tuple((1 << (PAGES >> depth)) - 1 for depth in range(DEEPEST + 1))
"""For each depth, as many one bits as a run at that depth has pages."""
_DOWN_TO: Final = tuple((2 << depth) - 1 for depth in range(DEEPEST + 1))
"""For each depth, the depths from 0 to it, as bits."""


class Chunk:
    """One chunk. ``memory`` is all of it. ``used`` counts the allocated pages, ``backed`` the pages that are or were
    allocated and may still have the system's memory.

    A chunk of a larger ``depth`` is only a node of the tree: half a chunk, a quarter, for a pool that is smaller than
    one. Making a chunk raises ``OSError`` if the system has no memory. The map is released with the last view of it.
    """

    __slots__ = ("_clean", "_fitting", "_free", "_map", "_touched", "backed", "memory", "used")

    def __init__(self, depth: int = 0) -> None:
        self._map = mmap.mmap(-1, CHUNK >> depth, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory = memoryview(self._map)
        self.used = self.backed = 0
        self._free = [0] * (DEEPEST + 1)
        self._free[depth] = 1
        """Free nodes by depth: bit n is the n-th from the left."""
        self._fitting = 1 << depth
        """The depths at which there is a free node, as bits."""
        self._touched = 0
        """Pages from here on have never been allocated."""
        self._clean = 0
        """Pages below that which the system has taken back, as bits."""

    def allocate(self, depth: int) -> int:
        """Allocate a run of that depth; return its first page, :data:`NONE` if there is none."""
        fitting = self._fitting & _DOWN_TO[depth]
        if not fitting:
            return NONE
        at = fitting.bit_length() - 1
        free = self._free
        nodes = free[at]
        node = (nodes & -nodes).bit_length() - 1
        free[at] = nodes = nodes & (nodes - 1)
        if not nodes:
            self._fitting ^= 1 << at
        for below in range(at + 1, depth + 1):  # the left half is split further, the right one becomes free
            node <<= 1
            free[below] = 2 << node
            self._fitting |= 1 << below
        page = node << (DEEPEST - depth)
        pages = PAGES >> depth
        self.used += pages
        if page + pages > self._touched:
            self.backed += page + pages - self._touched
            self._touched = page + pages
        if self._clean:
            reused = self._clean & (_RUNS[depth] << page)
            self._clean ^= reused
            self.backed += reused.bit_count()
        return page

    def release(self, page: int, depth: int) -> None:
        """Free a run; it merges with its buddy as long as that is free too."""
        self.used -= PAGES >> depth
        free = self._free
        node = page >> (DEEPEST - depth)
        nodes = free[depth]
        while nodes >> (node ^ 1) & 1:
            free[depth] = nodes = nodes ^ (1 << (node ^ 1))
            if not nodes:
                self._fitting ^= 1 << depth
            node >>= 1
            depth -= 1
            nodes = free[depth]
        free[depth] = nodes | 1 << node
        self._fitting |= 1 << depth

    def purge(self) -> None:
        """Give the system the memory of all pages that are not allocated; they read as zeros from now on.

        jemalloc does this with its dirty pages.
        """
        self.backed = self.used
        for depth, nodes in enumerate(self._free):
            while nodes:
                node = (nodes & -nodes).bit_length() - 1
                nodes &= nodes - 1
                self._purge(node << (DEEPEST - depth), depth)

    def _purge(self, page: int, depth: int) -> None:
        run = _RUNS[depth] << page & (1 << self._touched) - 1
        if run & ~self._clean:
            self._map.madvise(mmap.MADV_DONTNEED, page * PAGE, CHUNK >> depth)
            self._clean |= run
