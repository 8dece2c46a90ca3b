"""Moments at which a process of the shop is held, so that somebody can be killed just then.

The drill asks for a moment by a file. The next process that comes to the moment renames the file, so that it is the
only one, and waits until the file is gone.
"""

from __future__ import annotations

import enum
import os
import time
from pathlib import Path

HELD_FOR = 10.0
"""The most seconds that a process is held."""

POLL = 0.002


class Moment(enum.Enum):
    """A moment, in a task's process or in one of the web server's."""

    TASK_BEFORE_PREPARE = "task before prepare"
    TASK_BEFORE_COMMIT = "task between prepare and COMMIT"
    TASK_AFTER_COMMIT = "task between COMMIT and the broker's commit"
    TASK_DONE = "task before its worker hears that it is done"
    WEB_BEFORE_COMMIT = "request before COMMIT"
    WEB_AFTER_COMMIT = "request after COMMIT"

    @property
    def is_of_task(self) -> bool:
        """Whether it is a moment of a task."""
        return self.name.startswith("TASK")


def come_to(folder: Path, moment: Moment) -> None:
    """Wait here if the drill has asked for this moment. Called in the process that is to be held."""
    held = folder / f"held-{os.getpid()}"
    try:
        (folder / moment.name).rename(held)
    except FileNotFoundError:
        return
    deadline = time.monotonic() + HELD_FOR
    while held.exists() and time.monotonic() < deadline:
        time.sleep(POLL)


class Watch:
    """The drill's side: it asks for a moment, and lets go whoever is held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wait_for(self, moment: Moment, within: float) -> int | None:
        """Return the process that has come to a moment, and is held there; None if none does within so many seconds."""
        asked = self._folder / moment.name
        asked.touch()
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if (found := self._held()) is not None:
                return found
            time.sleep(POLL)
        asked.unlink(missing_ok=True)
        return self._held()

    def let_go(self) -> None:
        """Let go on whoever is held, if it still lives."""
        for held in self._folder.glob("held-*"):
            held.unlink()

    def _held(self) -> int | None:
        return next((int(held.name.rpartition("-")[2]) for held in self._folder.glob("held-*")), None)
