"""What a thread has released and is likely to want again: given out without a lock, and without a look at the budget.

Netty's ``PoolThreadCache`` (jemalloc's ``tcache``): a short stack for each size class up to 32 KiB.
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

Netty's are an eighth of this: ten thousand partitions that are flushed release as many buffers of one class at a time.
"""


class ThreadCache:
    """Stacks of blocks by class, ``blocks[number]``.

    Its thread appends and pops at the top; :meth:`drain` and :meth:`trim` may be called on any other meanwhile, because
    one append or pop of a list is atomic, and whatever a pop returns is the caller's alone.
    """

    __slots__ = ("_seen", "blocks", "thread")

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.blocks: tuple[list[Block], ...] = tuple([] for _ in LIMITS)
        self._seen: list[list[Block]] = [[] for _ in LIMITS]

    def drain(self) -> list[Block]:
        """Take out everything."""
        return [block for blocks in self.blocks for block in _bottom(blocks, len(blocks))]

    def trim(self) -> list[Block]:
        """Take out what was here at the last call and has been here since: that far down nobody has come.

        Netty counts allocations for that; to compare each stack with what it was costs them nothing.
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
    except IndexError:  # the thread whose cache it is has taken the last one
        return found
    return found


def _alike(blocks: list[Block], before: list[Block]) -> int:
    """How many of them, from the bottom, are the very same."""
    for number, (block, other) in enumerate(zip(blocks, before, strict=False)):
        if block is not other:
            return number
    return min(len(blocks), len(before))
