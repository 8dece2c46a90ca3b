"""Several worker processes: one process starts them, starts those that die again, passes signals on, and sees to their
end.

A child is told of its parent's death by its standard input: that is a pipe, which only the parent can write to, so it
ends when the parent does, however that dies.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

log = logging.getLogger("txbroker.worker")

STOPPING: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
"""The signals that stop a worker: the first one in order, the second one at once."""


def heard() -> list[int]:
    """Return those of them that are not ignored, as SIGHUP is under ``nohup``."""
    return [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until a child that has died is started again; each time twice as long, until one has lived for the longest.
"""
GRACE: Final = 10.0
"""Seconds that a child has to end, beyond the time that its messages have."""

FINAL_CODES: Final = frozenset((1, 2, 3, 6))
"""Exit codes with which a child says that it would end in the same way again; see ``docs/cli.md``."""


@dataclass
class Child:
    """A place for a process, with the process that has it or had it last."""

    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    pause: float = FIRST_PAUSE
    due: float = 0.0
    """When it is started again, if it does not run."""

    @property
    def runs(self) -> bool:
        """Whether it was running when it was last looked at."""
        return self.process is not None

    def start(self) -> None:
        """Start a process. It has a process group of its own, so that a terminal's Ctrl-C does not reach it twice."""
        self.began = time.monotonic()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, process_group=0)

    def ended(self) -> int | None:
        """Return the exit code if the process has ended since the last look; 128 and the signal if it was killed."""
        if self.process is None or self.process.poll() is None:
            return None
        code = self.process.returncode
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        return 128 - code if code < 0 else code

    def send(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.process is not None:
            self.process.send_signal(number)

    def rest(self) -> float:
        """Set when it is started again, and return the pause until then."""
        now = time.monotonic()
        if now - self.began >= LONGEST_PAUSE:
            self.pause = FIRST_PAUSE
        pause, self.pause = self.pause, min(LONGEST_PAUSE, 2 * self.pause)
        self.due = now + pause
        return pause


class Supervisor:
    """Runs a process for each of the commands, until a signal comes or one of them cannot go on. For the main thread.

    ``stop_timeout`` is what the children have been told, in seconds.
    """

    def __init__(self, commands: Sequence[Sequence[str]], stop_timeout: float) -> None:
        self._children = [Child(command) for command in commands]
        self._stop_timeout = stop_timeout
        self._deadline: float | None = None
        self._worst = 0
        self._passed_on: list[int] = []

    def run(self) -> int:
        """Return the worst exit code of those with which the children have ended for good."""
        with _signals() as signals:
            try:
                for child in self._children:
                    child.start()
                while self._deadline is None or any(child.runs for child in self._children):
                    for number in _wait(signals, self._until()):
                        self._told(number)
                    self._look()
            finally:
                for child in self._children:
                    child.send(signal.SIGKILL)
        return self._worst

    def _until(self) -> float:
        """Return the seconds until something is due."""
        dues = [child.due for child in self._children if not child.runs and self._deadline is None]
        if self._deadline is not None:
            dues.append(self._deadline)
        return max(0.0, min(dues, default=time.monotonic() + LONGEST_PAUSE) - time.monotonic())

    def _told(self, number: int) -> None:
        if number in STOPPING:
            self._stop(number)

    def _stop(self, number: int) -> None:
        """Pass a signal on. Nothing is started any more."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._stop_timeout + GRACE
        self._passed_on.append(number)
        for child in self._children:
            child.send(number)

    def _look(self) -> None:
        now = time.monotonic()
        for child in self._children:
            code = child.ended()
            if code is not None:
                self._ended(child, code)
            elif not child.runs and self._deadline is None and child.due <= now:
                child.start()
        if self._deadline is not None and now >= self._deadline:
            log.error("worker processes did not end in time, and are killed")
            self._deadline = now + GRACE
            for child in self._children:
                child.send(signal.SIGKILL)

    def _ended(self, child: Child, code: int) -> None:
        if self._deadline is not None:
            # Ended by the first signal itself, it had not begun to listen for signals, nor to work.
            had_not_begun = [code - 128] == self._passed_on
            self._worst = max(self._worst, 0 if had_not_begun else code)
        elif code in FINAL_CODES:
            self._worst = code
            log.error("a worker process has ended with exit code %d; the others are stopped", code)
            self._stop(signal.SIGTERM)
        else:
            log.warning(
                "a worker process has ended with exit code %d, and is started again in %g s",
                code,
                child.rest(),
            )


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Have the numbers of signals come out of a socket, each as a byte."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    caught = [*heard(), *([signal.SIGCHLD] if hasattr(signal, "SIGCHLD") else [])]
    before = {number: signal.signal(number, lambda *_: None) for number in caught}
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _wait(signals: socket.socket, seconds: float) -> bytes:
    """Wait for signals, at most so long; return their numbers."""
    select.select([signals], [], [], seconds)
    with suppress(BlockingIOError):
        return signals.recv(4096)
    return b""


def watch_parent() -> None:
    """In a child: send this process SIGTERM when its parent is gone. Returns at once."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="txbroker-parent", daemon=True).start()
