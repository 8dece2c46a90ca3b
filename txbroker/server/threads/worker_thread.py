"""Threads that take work from the reactor, in order, and return the results to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

CallFromThread = Callable[..., object]
"""``reactor.callFromThread``: runs a callable on the reactor's thread, soon."""


class Worker(Protocol):
    """The part of a worker thread that the service needs, so that tests can run the work by hand."""

    def submit(self, work: Callable[[], Result], done: Callable[[Result], None], failed: Failed) -> None:
        """Run ``work`` elsewhere, then either ``done`` or ``failed`` on the reactor's thread."""


Failed = Callable[[BaseException], None]


class WorkerThread:
    """``threads`` threads over one queue; with one thread, work is done in the order of its submission.

    The threads are daemons: one that hangs in a force of a broken disk must not keep the process from ending.
    """

    def __init__(self, name: str, call_from_thread: CallFromThread, threads: int = 1) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None], Failed] | None] = (
            SimpleQueue()
        )
        self._call_from_thread = call_from_thread
        self._threads = [
            threading.Thread(target=self._run, name=f"txbroker {name} {number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads; work that was submitted before is done first."""
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], Result], done: Callable[[Result], None], failed: Failed) -> None:
        """Run ``work`` on one of the threads, then ``done(result)`` or ``failed(error)`` on the reactor."""
        self._queue.put((work, done, failed))

    def stop(self, patience: float) -> bool:
        """End after the submitted work; return False if a thread still runs after that many seconds."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(patience)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        get, call_from_thread = self._queue.get, self._call_from_thread
        while (item := get()) is not None:
            work, done, failed = item
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  (whatever it is, the reactor decides)
                call_from_thread(failed, error)
            else:
                call_from_thread(done, result)
            # An idle thread must not keep the last group's memory alive.
            del item, work, done, failed
            result = None
