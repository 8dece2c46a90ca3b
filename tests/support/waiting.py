"""Waiting for what other processes and threads bring about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(0.01)
