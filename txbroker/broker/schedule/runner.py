"""The schedule runs when something new was published, and, by the reactor's clock, when a message is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from journal.formats.envelope import SCHEDULE_TOPIC
from journal.schedule.schedule import Schedule
from journal.schedule.steps import Steps
from txbroker.broker.fetches.fetch_attempt import CallLater, Cancellable
from txbroker.broker.fetches.fetches import RunBlocking

if TYPE_CHECKING:
    from journal.log.message_store import MessageStore

AGAIN: Final = 0.02
"""Seconds after which what could not be placed is tried again: memory is short, the disk is full, or a large commit is
being applied."""
LONGEST: Final = 60.0
"""Seconds after which the clocks are looked at, also if nothing is due."""


class ScheduleRunner:
    """Runs a schedule, one pass at a time. ``on_failure(doing, error)`` is called for a bug in it.

    Without ``call_later`` it runs only when something was published, or :meth:`wake` is called, and all at once.
    """

    log = Logger()

    def __init__(
        self,
        schedule: Schedule,
        run_blocking: RunBlocking,
        call_later: CallLater | None,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._schedule = schedule
        self._run_blocking = run_blocking
        self._call_later = call_later
        self._on_failure = on_failure
        self._steps: Steps | None = None
        self._again = False
        self._timer: Cancellable | None = None
        self.stopped = False

    def published(self, store: MessageStore) -> None:
        """Look at what is new in one of the broker's own topics, if that is the schedule's."""
        if store.topic == SCHEDULE_TOPIC:
            self.wake()

    def wake(self) -> None:
        """Run now, or once more behind the run that is under way."""
        if self._steps is not None:
            self._again = True
        elif not self.stopped:
            self._cancel_timer()
            self._steps = self._schedule.run()
            self._go_on(None)

    def look_for_gone(self) -> None:
        """Drop what is scheduled for partitions that are gone, if something is."""
        if self._schedule.fold.targets:
            self.wake()

    def stop(self) -> None:
        """Place nothing more."""
        self.stopped = True
        self._cancel_timer()
        self._steps = None

    def _go_on(self, result: Any) -> None:
        steps = self._steps
        if steps is None:
            return
        try:
            while not self._schedule.engine.failed:
                work = steps.send(result)
                result = None
                if work is not None:
                    self._run_blocking(work, self._go_on, self._failed)
                    return
                if self._call_later is not None:
                    self._call_later(0, self._go_on_later)
                    return
        except StopIteration:
            self._over()
        except Exception as error:  # noqa: BLE001  (whatever it is, the schedule must not stand still unnoticed)
            self._failed(error)

    def _go_on_later(self) -> None:
        self._go_on(None)

    def _failed(self, error: BaseException) -> None:
        self._steps = None
        if self._schedule.engine.failed:
            self._on_failure("placing scheduled messages", error)
            return
        self.log.failure("placing scheduled messages failed; it is tried again in a second", Failure(error))
        self._set_timer(1.0)

    def _over(self) -> None:
        self._steps = None
        if self._again:
            self._again = False
            self.wake()
            return
        waits = self._schedule.next_in()
        seconds = LONGEST if waits is None else min(LONGEST, waits / 1e6)
        self._set_timer(seconds or AGAIN)

    def _set_timer(self, seconds: float) -> None:
        if self._call_later is not None and not self.stopped:
            self._cancel_timer()
            self._timer = self._call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.wake()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
