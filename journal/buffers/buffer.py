"""Buffers, which ``allocate`` returns: a view of pooled memory, which the caller must release."""

from __future__ import annotations

import sys
import weakref
from typing import Final

from zope.interface import implementer

from journal.buffers.arena import Block, extent
from journal.buffers.leaks import allocation_site
from journal.buffers.pool import Pool
from journal.buffers.size_classes import PAGE
from journal.buffers.thread_cache import LIMITS
from journal.interfaces import IBuffer

POISON: Final = 0xDE
_POISONED: Final = bytes([POISON]) * PAGE


@implementer(IBuffer)
class Buffer:
    """One allocation. After the last :meth:`release` any use of ``view`` raises ``ValueError``.

    Any thread may release it, but no two threads may hold the same reference. Slices of ``view`` must be gone by then:
    they would show what the next owner writes.
    """

    __slots__ = ("_block", "_pool", "_references", "view")

    def __init__(self, pool: Pool, block: Block, view: memoryview) -> None:
        self._pool = pool
        self._block = block
        self._references = 1
        self.view = view

    def retain(self) -> None:
        """Take one more reference: the last release frees the memory."""
        if not self._references:
            raise RuntimeError(f"a buffer was retained that had been released{self._story()}")
        self._references += 1

    def release(self) -> None:
        """Release a reference.

        Raises ``RuntimeError`` for one release too many (other data may have been overwritten), and ``BufferError``
        while the view itself is being read or written elsewhere; then nothing has been released.
        """
        references = self._references - 1
        if references:
            self._give_reference(references)
            return
        self.view.release()
        self._references = 0
        block = self._block
        pool = self._pool
        blocks = pool.caches.blocks[block[2]]
        if len(blocks) < LIMITS[block[2]]:
            blocks.append(block)
        else:
            pool.give_back(block)

    def _give_reference(self, references: int) -> None:
        if references < 0:
            raise RuntimeError(
                f"a buffer was released twice: its memory may already be another's{self._story()}"
            )
        self._references = references

    def _story(self) -> str:
        return ""


class WatchedBuffer(Buffer):
    """A buffer that remembers where it was allocated, reports it if it is lost, and is poisoned if the
    allocator poisons.
    """

    __slots__ = ("_living", "_site")

    def __init__(self, pool: Pool, block: Block, view: memoryview) -> None:
        super().__init__(pool, block, view)
        self._site = allocation_site()
        # The collector clears this before it calls us, also when the allocator itself ends: nothing is lost then.
        self._living = weakref.ref(pool)

    def release(self) -> None:
        """Release as any buffer does; if the allocator poisons, fill the memory with 0xDE first."""
        if self._references == 1 and self._pool.poison:
            poison(self._block)
        super().release()

    def __del__(self) -> None:
        pool = self._living()
        if self._references and pool is not None and pool.leaks is not None and not sys.is_finalizing():
            pool.leaks.lost(len(self.view), self._site)

    def _story(self) -> str:
        return f"; it was allocated at {self._site}"


def poison(block: Block) -> None:
    """Fill memory that is being freed, so that a view that is used too late shows."""
    memory = extent(block)
    for position in range(0, len(memory), PAGE):
        page = memory[position : position + PAGE]
        page[:] = _POISONED[: len(page)]
