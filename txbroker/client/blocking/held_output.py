"""The thread that sends held output in time: requests that might wait for another to be sent with, if none comes.

One thread serves all blocking connections of a process. While output is held again and again it looks every
:data:`HELD` seconds by itself whether some is overdue: to wake it for each request would cost the caller 20 µs. It
sleeps after :data:`QUIET` looks at which none was held.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import Final, Protocol

from txbroker.client.blocking.semaphore import BinarySemaphore
from txbroker.client.core.core import HELD

log = logging.getLogger("txbroker.client")

QUIET: Final = 2


class Holder(Protocol):
    """A connection that holds output."""

    @property
    def held_until(self) -> float:
        """When its output must go out, by the monotonic clock; infinity if it holds none."""

    def send_held(self) -> None:
        """Send the output that it holds."""


class Pacer:
    """Sends the held output of any number of connections in time."""

    def __init__(self) -> None:
        self._holders: dict[Holder, None] = {}
        self.forked()

    def forked(self) -> None:
        """Begin anew in a child process: the thread is the parent's, and so is all that is held."""
        self._holders.clear()
        self._expected = object()
        self._is_asleep = True
        self._wake = BinarySemaphore()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def expect(self, holder: Holder) -> None:
        """Look after a connection that holds output. To be called once it does, for the thread sleeps when it has found
        none for some looks; where an interrupt may follow, before as well.
        """
        self._holders[holder] = None
        self._expected = object()
        if self._is_asleep:
            self._is_asleep = False
            self._wake.release()
            if self._thread is None:
                self._start()

    def forget(self, holder: Holder) -> None:
        """Look after a connection no more, because it is closed."""
        self._holders.pop(holder, None)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="txbroker-held", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        with self._starting:
            self._thread = self._thread or threading.current_thread()  # none: its starter was interrupted
        while self._thread is threading.current_thread():
            try:
                self._pace()
            except Exception:
                log.exception(
                    "held output could not be sent; it goes with the next request of its connection"
                )
                time.sleep(HELD)

    def _pace(self) -> None:
        """Look again and again, and then sleep until output is expected."""
        quiet, expected = 0, self._expected
        while quiet < QUIET:
            now = time.monotonic()
            pause = self._send_overdue(now) - now
            quiet += 1
            if pause < math.inf or self._expected is not expected:
                quiet, expected = 0, self._expected
            time.sleep(pause if 0 < pause < HELD else HELD)
        self._is_asleep = True
        if self._expected is expected:  # looked at after the flag was set: what comes later finds the flag
            self._wake.acquire()
        self._is_asleep = False

    def _send_overdue(self, now: float) -> float:
        """Send what is overdue; return when the next is."""
        soonest = math.inf
        for holder in list(self._holders):
            at = holder.held_until
            if at <= now:
                holder.send_held()
                at = holder.held_until
            soonest = min(soonest, at)
        return soonest


PACER = Pacer()

if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=PACER.forked)
