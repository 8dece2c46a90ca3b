"""How often a worker's handler fails with a message follows from which message it is, for worker and judge alike."""

from __future__ import annotations

from typing import Final
from zlib import crc32

ALWAYS: Final = 1 << 30
"""So many failures are more than any policy allows."""

POISON: Final = 50
"""One of so many messages fails always."""
ONCE: Final = 12
TWICE: Final = 51
"""One of so many fails once, or twice, and then succeeds."""


def failures_of(sender: str, operation: int, number: int) -> int:
    """Return in how many attempts the handler fails on purpose before it succeeds; ALWAYS: it never does."""
    drawn = crc32(f"{sender}/{operation}/{number}".encode())
    if drawn % POISON == 0:
        return ALWAYS
    if drawn % TWICE == 1:
        return 2
    return int(drawn % ONCE == 2)
