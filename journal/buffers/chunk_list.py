"""Chunks in lists by usage, so that full ones are not searched and nearly empty ones become empty.

There are six lists, as in Netty's ``PoolChunkList``: init, 0, 25, 50, 75 and 100 %. Their ranges overlap, so that a
chunk at a threshold does not move to and fro. Runs are taken first from chunks that are half full, last from those
nearly full (where the search fails most often), and from empty ones only if others have no room.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from journal.buffers.chunk import NONE, Chunk
from journal.buffers.size_classes import PAGES

RANGES: Final = (
    (0, PAGES // 4),
    (1, PAGES // 2),
    (PAGES // 4, PAGES * 3 // 4),
    (PAGES // 2, PAGES),
    (PAGES * 3 // 4, PAGES),
    (PAGES, PAGES + 1),
)
"""For each list, the least number of pages in use and the number that is too many."""

_ORDER: Final = (3, 2, 1, 0, 4)


class ChunkLists:
    """All chunks of an arena. New chunks, and those that have become empty again, are in the first list.

    ``backed`` counts pages as a :class:`~journal.buffers.chunk.Chunk` does, of all chunks.
    """

    def __init__(self) -> None:
        self.backed = 0
        self.lists: tuple[list[Chunk], ...] = tuple([] for _ in RANGES)
        self._place: dict[Chunk, int] = {}

    def __len__(self) -> int:
        return len(self._place)

    def __iter__(self) -> Iterator[Chunk]:
        return chain.from_iterable(self.lists)

    def allocate(self, depth: int) -> tuple[Chunk, int] | None:
        """Return a run of that depth, as its chunk and its first page; None if no chunk has one."""
        for place in _ORDER:
            for chunk in self.lists[place]:
                backed = chunk.backed
                page = chunk.allocate(depth)
                if page != NONE:
                    self.backed += chunk.backed - backed
                    if chunk.used >= RANGES[place][1]:
                        self._move(chunk, place)
                    return chunk, page
        return None

    def release(self, chunk: Chunk, page: int, depth: int) -> None:
        """Free a run."""
        chunk.release(page, depth)
        place = self._place[chunk]
        if chunk.used < RANGES[place][0]:
            self._move(chunk, place)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk of which nothing is in use."""
        self._place[chunk] = 0
        self.lists[0].append(chunk)

    def shed(self, pages: int) -> None:
        """Give at least that many unused backed pages back to the system, from the emptiest chunks first.

        A chunk of which nothing is in use is given back as a whole.
        """
        for chunk in sorted(self, key=_used):
            if pages <= 0:
                return
            unused = chunk.backed - chunk.used
            pages -= unused
            self.backed -= unused
            if chunk.used:
                chunk.purge()
            else:
                self.lists[self._place.pop(chunk)].remove(chunk)

    def _move(self, chunk: Chunk, place: int) -> None:
        self.lists[place].remove(chunk)
        while chunk.used >= RANGES[place][1]:
            place += 1
        while chunk.used < RANGES[place][0]:
            place -= 1
        self._place[chunk] = place
        self.lists[place].append(chunk)


def _used(chunk: Chunk) -> int:
    return chunk.used
