"""Control of the C library's freed memory, which Python's bytes objects leave behind. Only glibc has these calls."""

from __future__ import annotations

import ctypes
from typing import Final

from journal.constants import MIB

KEPT: Final = 32 * MIB
"""Freed memory up to this size is kept for reuse; this is the most that the C library allows for the call below."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """Let the C library reuse the memory of large answers and requests instead of returning it each time.

    Measured here: 1 MiB fetches cost the broker 0.46 instead of 1.1 ns of processor time a byte, batches of 64 KiB 205
    instead of 245 µs each; the difference were page faults.
    """
    _call("mallopt", _M_TRIM_THRESHOLD, KEPT)
    _call("mallopt", _M_MMAP_THRESHOLD, KEPT)


def give_back_freed_memory() -> None:
    """Return freed memory to the system, also memory between blocks in use, which the C library never does by itself.

    It takes 3 ms for 130 MiB, 0.01 ms for nothing.
    """
    _call("malloc_trim", ctypes.c_size_t(KEPT))


def _call(name: str, *arguments: object) -> None:
    """Call a function that only glibc has; elsewhere do nothing."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return
    function(*arguments)
