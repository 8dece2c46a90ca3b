"""The size classes: a request is rounded up to one of 47, so that freed memory fits later requests.

The classes are those of Netty 4.1 before it took jemalloc 4's; they go back to the first jemalloc (J. Evans, "A
Scalable Concurrent malloc(3) Implementation for FreeBSD", BSDCan 2006). *Tiny* ones are 16 bytes apart and below 512,
*small* ones double to 4 KiB; both are parts of a page. Larger ones are runs of pages that double, up to a whole chunk.
"""

from __future__ import annotations

from typing import Final

from journal.constants import KIB, MIB

PAGE: Final = 8 * KIB
CHUNK: Final = 16 * MIB
PAGES: Final = CHUNK // PAGE
DEEPEST: Final = PAGES.bit_length() - 1
"""Depth in a chunk's tree at which a node is one page; the whole chunk is at depth 0."""

_TINY: Final = tuple(range(16, 512, 16))
_SMALL: Final = tuple(512 << power for power in range(4))
SIZES: Final = (*_TINY, *_SMALL, *(PAGE << power for power in range(DEEPEST + 1)))
"""Bytes of each class, by its number."""

FIRST_RUN: Final = len(_TINY) + len(_SMALL)
"""Number of the first class that is whole pages."""

LARGEST_TABLED: Final = 32 * KIB


def _numbers() -> bytes:
    numbers = bytearray()
    for number, size in enumerate(SIZES):
        if size > LARGEST_TABLED:
            break
        numbers += bytes([number]) * (size + 1 - len(numbers))
    return bytes(numbers)


NUMBERS: Final = _numbers()
"""The class of each size up to :data:`LARGEST_TABLED`: a look-up takes 19 ns, computing it takes a µs."""

assert SIZES[-1] == CHUNK
assert len(SIZES) == 47
assert len(NUMBERS) == LARGEST_TABLED + 1
assert all(PAGE // size for size in SIZES[:FIRST_RUN])


def class_of(size: int) -> int:
    """Return the number of the smallest class that holds ``size`` bytes, which must be from 0 to :data:`CHUNK`."""
    if size <= LARGEST_TABLED:
        return NUMBERS[size]
    return FIRST_RUN + ((size - 1) // PAGE).bit_length()


def depth_of(number: int) -> int:
    """Return the depth in a chunk at which runs of that class are; for parts of pages, the depth of one page."""
    return DEEPEST - max(0, number - FIRST_RUN)


def rounded(size: int) -> int:
    """Return the bytes that a request of ``size`` gets; beyond a chunk, whole pages."""
    if size > CHUNK:
        return -(-size // PAGE) * PAGE
    return SIZES[class_of(size)]
