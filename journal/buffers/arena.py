"""The arena, which supplies memory that no cache has: chunks, pages in parts, separate maps for huge memory; the
budget.

Netty has several arenas so that threads do not wait for each other's lock. Here all threads share the interpreter's
lock, so there is one.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, NamedTuple

from journal.buffers.chunk import Chunk
from journal.buffers.chunk_list import ChunkLists
from journal.buffers.size_classes import CHUNK, DEEPEST, FIRST_RUN, PAGE, SIZES, class_of, depth_of, rounded
from journal.buffers.subpage import Subpage
from journal.constants import MIB
from journal.errors import MemoryExhausted
from journal.vfs.c_library import give_back_freed_memory

RESERVE: Final = 1 * MIB
"""Unused memory that is kept although it was not needed for a while."""

HUGE: Final = len(SIZES)
"""The class number of memory that is larger than a chunk."""


Block = tuple[memoryview, int, int, Chunk | Subpage | None, Callable[..., Any]]
"""Allocated memory: its map, its position there, its class, the place that takes it back, and the kind of its
buffers.
"""


def extent(block: Block) -> memoryview:
    """Return all of the memory of a block."""
    memory, start, number, _, _ = block
    return memory if number == HUGE else memory[start : start + SIZES[number]]


class Usage(NamedTuple):
    """How much memory there is of each kind, in bytes, and how many chunks.

    ``used`` are pages in use, including those in caches and the free parts of pages, and huge memory; ``fragmented``
    are these free parts. ``kept`` are pages that are not in use and still backed by the system's memory.
    """

    used: int
    reserved: int
    kept: int
    fragmented: int
    chunks: int


class Arena:
    """At most ``budget`` bytes in use and reserved; memory kept beside them is given back when they need the budget.

    Whole pages are counted: a part of a page counts when it needs another page. All calls need ``lock``, except those
    of properties.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.lock = Lock()
        self.free = budget
        """Bytes that are not used; some may be reserved."""
        self.reserved = 0
        """Bytes held outside that are counted; only one thread changes it, with or without the lock."""
        self.unreserved = 0
        """Bytes that were held outside, and that the C library may have kept since; changed by the same thread."""
        self._huge = 0
        self._least_free = budget
        self._depth = max(0, DEEPEST - ((budget - 1) // PAGE).bit_length())
        self.chunks = ChunkLists()
        self._pages: tuple[OrderedDict[Subpage, None], ...] = tuple(OrderedDict() for _ in range(FIRST_RUN))
        """Pages with a free part, by class; the one that has had a free part for longest is used first."""

    @property
    def used(self) -> int:
        """Bytes of pages in use, and of huge memory."""
        return self.budget - self.free

    @property
    def available(self) -> int:
        """How many more bytes may be used or reserved."""
        return self.free - self.reserved

    @property
    def unbacked(self) -> int:
        """Bytes of the budget that no memory of the system backs: they can be reserved without giving kept
        memory back.
        """
        return self.budget - self._huge - self.chunks.backed * PAGE

    @property
    def kept(self) -> int:
        """Bytes that are not used and may still be backed by the system's memory."""
        return self.free - self.unbacked

    def take(self, size: int, kind: Callable[..., Any]) -> Block | None:
        """Return memory for buffers of a kind; None if the budget has no room.

        Raises :class:`MemoryExhausted` if the system has none. In either case nothing has changed.
        """
        if size > CHUNK:
            return self._take_huge(rounded(size), kind)
        number = class_of(size)
        if number >= FIRST_RUN:
            run = self._take_run(depth_of(number))
            return run and (run[0].memory, run[1] * PAGE, number, run[0], kind)
        pages = self._pages[number]
        if pages:
            subpage = next(iter(pages))
        else:
            run = self._take_run(DEEPEST)
            if run is None:
                return None
            subpage = Subpage(*run, number)
            pages[subpage] = None
        start = subpage.take()
        if not subpage.free:
            del pages[subpage]
        return subpage.chunk.memory, start, number, subpage, kind

    def give(self, block: Block) -> None:
        """Take memory back; a page whose parts are all free goes back to its chunk."""
        memory, start, number, home, _ = block
        if number < FIRST_RUN:
            assert isinstance(home, Subpage)
            was_full = not home.free
            home.give(start)
            if home.free == home.all:
                self._pages[number].pop(home, None)
                self._give_run(home.chunk, home.start // PAGE, DEEPEST)
            elif was_full:
                self._pages[number][home] = None
        elif isinstance(home, Chunk):
            self._give_run(home, start // PAGE, depth_of(number))
        else:
            self.free += len(memory)
            self._huge -= len(memory)

    def make_way(self) -> None:
        """Give kept memory back, as far as it would exceed the budget beside used and reserved memory."""
        surplus = self.reserved - self.unbacked
        if surplus > 0:
            self.chunks.shed(-(-surplus // PAGE))

    def trim(self) -> None:
        """Give back kept memory that was not needed since the last call, except the reserve.

        So memory that is taken and released again and again stays, as with jemalloc's decay.
        """
        self.chunks.shed((self._least_free - self.unbacked - RESERVE) // PAGE)
        self._least_free = self.free
        self._have_freed_given_back()

    def usage(self) -> Usage:
        """Return how much memory there is of each kind."""
        free = sum(page.free_bytes for pages in self._pages for page in pages)
        return Usage(self.used, self.reserved, self.kept, free, len(self.chunks))

    def _take_run(self, depth: int) -> tuple[Chunk, int] | None:
        if CHUNK >> depth > self.free - self.reserved:
            return None
        found = self.chunks.allocate(depth)
        if found is None:
            self._have_freed_given_back()
            try:
                self.chunks.add(Chunk(self._depth))
            except OSError as error:
                raise self._refused(CHUNK >> self._depth, error) from error
            found = self.chunks.allocate(depth)
            assert found is not None, "an empty chunk has a run of any length"
        self.free -= CHUNK >> depth
        if self.free < self._least_free:
            self._least_free = self.free
        self.make_way()
        return found

    def _have_freed_given_back(self) -> None:
        """Have freed memory that was held outside given back, so that it is not resident beside the memory
        taken here.
        """
        if self.unreserved >= CHUNK:
            self.unreserved = 0
            give_back_freed_memory()

    def _give_run(self, chunk: Chunk, page: int, depth: int) -> None:
        self.chunks.release(chunk, page, depth)
        self.free += CHUNK >> depth

    def _take_huge(self, size: int, kind: Callable[..., Any]) -> Block | None:
        if size > self.available:
            return None
        self._have_freed_given_back()
        try:
            memory = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError as error:
            raise self._refused(size, error) from error
        self.free -= size
        self._huge += size
        self.make_way()
        return memory, 0, HUGE, None, kind

    def _refused(self, size: int, error: OSError) -> MemoryExhausted:
        return MemoryExhausted(
            f"the system gives no {size} bytes of memory ({error}); {self.used} of the pool's {self.budget} bytes are "
            "in use. Nothing has changed, try again when what is pending has been flushed; if it stays so, lower "
            "pool_bytes or let the process have more memory (ulimit -v, vm.overcommit_memory, vm.max_map_count)"
        )
