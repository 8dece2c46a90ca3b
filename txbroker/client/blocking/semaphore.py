"""How one thread tells another to look up, so that no interrupt leaves it half told.

``threading.Event`` and ``Condition`` are written in Python: what a signal's handler raises in the main thread may leave
an event set with nobody woken, or its lock held for ever. A plain lock is of one piece.
"""

from __future__ import annotations

import threading
import time

from txbroker.client.loop.poller import INTERRUPTIBLE, LONGEST


class BinarySemaphore:
    """At first there is nothing to take. Any number of :meth:`release` let one :meth:`acquire` pass."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def release(self) -> None:
        """Let one pass: who waits, or else the next. Does nothing if that was said already."""
        try:
            self._lock.release()
        except RuntimeError:
            return  # released already, and not taken yet

    def acquire(self, seconds: float | None = None) -> bool:
        """Wait for a release and take it; False if none came in so many seconds. Ctrl-C ends it on every system."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = threading.TIMEOUT_MAX if end is None else max(0.0, end - time.monotonic())
            if self._lock.acquire(timeout=left if INTERRUPTIBLE else min(left, LONGEST)):
                return True
            if end is not None and time.monotonic() >= end:
                return False
