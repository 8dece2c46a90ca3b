"""The cache of blocks that a thread has released and will probably need again, used without a lock and without a check
of the budget.

It follows Netty's ``PoolThreadCache`` (jemalloc's ``tcache``): a short stack for each size class up to 32 KiB.
"""

from __future__ import annotations

from threading import Thread
from typing import Final

from journal.buffers.arena import Block
from journal.buffers.size_classes import CHUNK, LARGEST_TABLED, SIZES
from journal.constants import MIB

LARGEST_CACHED: Final = LARGEST_TABLED

LIMITS: Final = tuple(
    min(8192, 4 * MIB // size) if size <= LARGEST_CACHED else 0 for size in (*SIZES, CHUNK + 1)
)
"""How many blocks of each class a cache holds; the last is :data:`journal.buffers.arena.HUGE`.

Netty's are an eighth of this. A flush of ten thousand partitions releases as many buffers of one class at a time.
"""


class ThreadCache:
    """Stacks of blocks by class, ``blocks[number]``.

    Its thread appends and pops at the top. :meth:`drain` and :meth:`trim` may be called on another thread meanwhile,
    because one append or pop of a list is atomic, and what a pop returns belongs to the caller alone.
    """

    __slots__ = ("_seen", "blocks", "thread")

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.blocks: tuple[list[Block], ...] = tuple([] for _ in LIMITS)
        self._seen: list[list[Block]] = [[] for _ in LIMITS]

    def drain(self) -> list[Block]:
        """Remove and return all blocks."""
        return [block for blocks in self.blocks for block in _bottom(blocks, len(blocks))]

    def trim(self) -> list[Block]:
        """Remove and return the blocks that were here at the last call and all the time since: so many were not needed.

        Netty counts allocations for that; comparing each stack with its earlier state costs the allocations nothing.
        """
        found = []
        for number, blocks in enumerate(self.blocks):
            if blocks:
                found += _bottom(blocks, _alike(blocks.copy(), self._seen[number]))
            self._seen[number] = blocks.copy()
        return found


def _bottom(blocks: list[Block], most: int) -> list[Block]:
    found: list[Block] = []
    try:
        while len(found) < most:
            found.append(blocks.pop(0))
    except IndexError:  # the cache's own thread has taken the last one
        return found
    return found


def _alike(blocks: list[Block], before: list[Block]) -> int:
    """Return how many blocks, from the bottom, are the very same."""
    for number, (block, other) in enumerate(zip(blocks, before, strict=False)):
        if block is not other:
            return number
    return min(len(blocks), len(before))
