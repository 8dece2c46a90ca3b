"""Signals that stop a command in order, and at once if they come again; and Ctrl-C alone, that a command looks for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from txbroker.worker.supervisor import heard


class OrderlyStop:
    """Catches the stopping signals while it is entered; for the main thread.

    The first one calls what :meth:`stops` was given, also if that comes later. The second one ends the process at once,
    with 128 and its number as exit code: what is under way is not finished.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], Any] | None = None
        self._came = False
        self._before: dict[int, Any] = {}

    def stops(self, stop: Callable[[], Any]) -> None:
        """Have the first signal call ``stop``."""
        self._stop = stop
        if self._came:
            stop()

    def _caught(self, number: int, _: FrameType | None) -> None:
        if self._came:
            os.write(2, b"stopped at once: what was under way is not finished\n")
            os._exit(128 + number)
        self._came = True
        os.write(2, b"stopping: what is under way is finished; a second signal stops at once\n")
        if self._stop is not None:
            self._stop()

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._caught) for number in heard()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextmanager
def noted_interrupt() -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C, for the main thread; gives what tells whether it has come. A second one raises KeyboardInterrupt.

    One that is raised in the middle of the connection's work costs the session, and the broker counts an attempt for
    each message that it had.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)
