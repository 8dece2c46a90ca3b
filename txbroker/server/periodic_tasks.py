"""Periodic tasks run on the reactor's clock, each at its own interval.

All ages are journal time, which is monotonic and continues over restarts; the wall clock decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """An action to be run every ``interval`` seconds."""

    name: str
    interval: float
    action: Callable[[], object]


class PeriodicTasks:
    """Runs periodic tasks. One that raises is logged and tried again next time; the others continue."""

    log = Logger()

    def __init__(self, clock: IReactorTime, tasks: Sequence[PeriodicTask]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._calls: list[LoopingCall] = []

    def start(self) -> None:
        """Begin; every task is first due after its interval."""
        for task in self._tasks:
            call = LoopingCall(self._run, task)
            call.clock = self._clock
            call.start(task.interval, now=False)
            self._calls.append(call)

    def stop(self) -> None:
        """End; a second call does nothing."""
        calls, self._calls = self._calls, []
        for call in calls:
            call.stop()

    def _run(self, task: PeriodicTask) -> None:
        try:
            task.action()
        except Exception:  # noqa: BLE001  (whatever it is, the other tasks must go on)
            self.log.failure(
                "{task} failed; it is tried again in {seconds:g} s", task=task.name, seconds=task.interval
            )
