"""The plain allocator: chunks of a power of two, large ones on anonymous maps, kept for reuse within a budget."""

from __future__ import annotations

import mmap

from zope.interface import implementer

from journal.constants import KIB, MIB
from journal.errors import MemoryExhausted
from journal.interfaces import IBuffer, IBufferAllocator

SMALLEST_CHUNK = 4 * KIB
SMALLEST_MAP = 64 * KIB
"""Smaller chunks come from the C library: ten thousand partitions with a message each would else take 640 MB of the
budget, and the kernel allows a process 65,530 maps."""
LARGEST_POOLED = 16 * MIB
"""A larger request gets a map of its own, rounded up to whole smallest chunks and never kept for reuse."""

POISON = 0xDE
_POISON_BLOCK = bytes([POISON]) * SMALLEST_CHUNK


@implementer(IBuffer)
class Buffer:
    """One allocation. After :meth:`release` any use of ``view`` raises ``ValueError``."""

    __slots__ = ("_allocator", "_memory", "view")

    def __init__(self, allocator: BudgetAllocator, memory: memoryview, size: int) -> None:
        self._allocator: BudgetAllocator | None = allocator
        self._memory = memory
        self.view = memory[:size]

    def release(self) -> None:
        """Give the memory back. Raises ``RuntimeError`` the second time: somebody's bytes were at stake."""
        allocator, self._allocator = self._allocator, None
        if allocator is None:
            raise RuntimeError("a buffer was released twice: its memory may already be another's")
        self.view.release()
        allocator.take_back(self._memory)


@implementer(IBufferAllocator)
class BudgetAllocator:
    """Chunks from 4 KiB to 16 MiB, doubling, of together at most ``budget`` bytes. Not thread-safe.

    What is counted is the size of the chunk, not of the request. Freed chunks are kept while they fit into
    the budget beside what is in use and what is reserved. With ``poison`` they are filled with 0xDE when
    freed, so that a view used too late shows. ``kept`` counts the bytes of freed chunks.
    """

    def __init__(self, budget: int, poison: bool = False) -> None:
        self.budget = budget
        self._poison = poison
        self._in_use = 0
        self._reserved = 0
        self.kept = 0
        self._free: dict[int, list[memoryview]] = {}

    def available(self) -> int:
        """How many more bytes may be allocated or reserved now."""
        return self.budget - self._in_use - self._reserved

    def allocate(self, size: int) -> Buffer:
        """Return a buffer of ``size`` bytes; raises :class:`MemoryExhausted` over the budget."""
        rounded = chunk_size(size)
        if rounded > self.available():
            raise MemoryExhausted(
                f"{rounded} bytes of buffer are needed, {self.available()} of {self.budget} are free; "
                "nothing has changed, try again when what is pending has been flushed"
            )
        self._in_use += rounded
        free = self._free.get(rounded)
        if free:
            self.kept -= rounded
            return Buffer(self, free.pop(), size)
        self._unmap_surplus()
        memory = mmap.mmap(-1, rounded) if rounded >= SMALLEST_MAP else bytearray(rounded)
        return Buffer(self, memoryview(memory), size)

    def take_back(self, memory: memoryview) -> None:
        """For :meth:`Buffer.release` alone: count the chunk as free and keep it for the next who asks."""
        size = len(memory)
        self._in_use -= size
        if self._poison:
            for position in range(0, size, SMALLEST_CHUNK):
                memory[position : position + SMALLEST_CHUNK] = _POISON_BLOCK
        if size <= LARGEST_POOLED:
            self._free.setdefault(size, []).append(memory)
            self.kept += size

    def reserve(self, size: int) -> None:
        """Count ``size`` bytes that are held elsewhere; raises :class:`MemoryExhausted` over the budget."""
        left = self.budget - self._in_use - self._reserved - size
        if left < 0:
            raise MemoryExhausted(
                f"{size} bytes of memory are needed, {self.available()} of {self.budget} are free; "
                "nothing has changed, try again when what is pending has been flushed"
            )
        self._reserved += size
        if self.kept > left:  # asked here, not there: every staged message comes by
            self._unmap_surplus()

    def unreserve(self, size: int) -> None:
        """Stop counting ``size`` bytes that :meth:`reserve` counted."""
        if size > self._reserved:
            raise RuntimeError(f"{size} bytes are given back, {self._reserved} are reserved")
        self._reserved -= size

    def _unmap_surplus(self) -> None:
        """Drop kept chunks, largest first, until all that is mapped or reserved fits into the budget."""
        while self.kept > max(0, self.available()):
            size = max(size for size, chunks in self._free.items() if chunks)
            self._free[size].pop()
            self.kept -= size


def chunk_size(size: int) -> int:
    """The bytes that a request of ``size`` takes from the budget."""
    if size <= SMALLEST_CHUNK:
        return SMALLEST_CHUNK
    if size > LARGEST_POOLED:
        return -(-size // SMALLEST_CHUNK) * SMALLEST_CHUNK
    return int(1 << (size - 1).bit_length())
