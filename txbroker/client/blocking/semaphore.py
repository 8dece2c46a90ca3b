"""A semaphore with which one thread wakes another; an interrupt at any moment leaves it consistent.

``threading.Event`` and ``Condition`` are written in Python: an exception that a signal's handler raises in the main
thread may leave an event set without a woken thread, or its lock held for ever. A plain lock changes in one step.
"""

from __future__ import annotations

import math
import threading
import time

from txbroker.client.loop.poller import INTERRUPTIBLE, LONGEST

LONGEST_PAUSE = 86_400.0
"""Seconds: a lock takes no time-out of centuries."""


class BinarySemaphore:
    """A semaphore that begins at zero. Any number of calls of :meth:`release` let one :meth:`acquire` pass."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def release(self) -> None:
        """Let one waiting thread pass, or else the next one that comes. Does nothing if one may pass already."""
        try:
            self._lock.release()
        except RuntimeError:
            return  # released already, and not acquired yet

    def acquire(self, seconds: float | None = None) -> bool:
        """Wait for a release and take it; return False if none came within ``seconds``. Ctrl-C ends it on
        every system.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = threading.TIMEOUT_MAX if end is None else max(0.0, end - time.monotonic())
            if self._lock.acquire(timeout=left if INTERRUPTIBLE else min(left, LONGEST)):
                return True
            if end is not None and time.monotonic() >= end:
                return False


def pause_until(at: float, most: float) -> float | None:
    """Return for how many seconds to wait until a time of the monotonic clock, ``most`` at most; None without end."""
    left = min(at - time.monotonic(), most)
    return None if left == math.inf else min(max(0.0, left), LONGEST_PAUSE)
