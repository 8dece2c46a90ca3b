"""The periodic duties: a table of actions, each with its interval, on the reactor's clock.

All ages are journal time, which is monotonic and continues over restarts; the wall clock decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger


@dataclass(frozen=True, slots=True)
class Duty:
    """An action to be run every ``interval`` seconds."""

    name: str
    interval: float
    action: Callable[[], object]


class Timeouts:
    """Runs duties. One that raises is logged and tried again next time; the others continue."""

    log = Logger()

    def __init__(self, clock: IReactorTime, duties: Sequence[Duty]) -> None:
        self._clock = clock
        self._duties = duties
        self._calls: list[LoopingCall] = []

    def start(self) -> None:
        """Begin; every duty is first due after its interval."""
        for duty in self._duties:
            call = LoopingCall(self._carry_out, duty)
            call.clock = self._clock
            call.start(duty.interval, now=False)
            self._calls.append(call)

    def stop(self) -> None:
        """End; a second call does nothing."""
        calls, self._calls = self._calls, []
        for call in calls:
            call.stop()

    def _carry_out(self, duty: Duty) -> None:
        try:
            duty.action()
        except Exception:  # noqa: BLE001  (whatever it is, the other duties must go on)
            self.log.failure(
                "{duty} failed; it is tried again in {seconds:g} s", duty=duty.name, seconds=duty.interval
            )
