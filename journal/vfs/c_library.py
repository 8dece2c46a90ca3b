"""What the C library keeps of the memory that Python's bytes leave behind. Only glibc knows these calls."""

from __future__ import annotations

import ctypes
from typing import Final

from journal.constants import MIB

KEPT: Final = 32 * MIB
"""Freed memory up to this size is kept for reuse; the C library allows no more for its second use below."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """Let the C library reuse the memory of large answers and requests instead of giving it back each time.

    Measured here: 1 MiB fetches cost the broker 0.46 instead of 1.1 ns of processor time a byte, batches of
    64 KiB 205 instead of 245 µs each; the rest went to page faults.
    """
    _call("mallopt", _M_TRIM_THRESHOLD, KEPT)
    _call("mallopt", _M_MMAP_THRESHOLD, KEPT)


def give_back_freed_memory() -> None:
    """Give freed memory back to the system, also from between what is in use, which the C library never does by itself.

    3 ms for 130 MiB, 0.01 ms for nothing.
    """
    _call("malloc_trim", ctypes.c_size_t(KEPT))


def _call(name: str, *arguments: object) -> None:
    """Call what only glibc has; elsewhere the C library's own ways stand."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return
    function(*arguments)
