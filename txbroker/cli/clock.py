"""The one place where the command line reads the clock."""

from __future__ import annotations

import time


def now_micros() -> int:
    """µs since 1970 UTC."""
    return time.time_ns() // 1_000
