"""What the broker does by itself, in passes: when something has happened, and when the reactor's clock says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure

from journal.schedule.steps import Steps
from txbroker.broker.fetches.fetch_attempt import CallLater, Cancellable
from txbroker.broker.fetches.fetches import RunBlocking

if TYPE_CHECKING:
    from journal.engine.engine import Engine

AGAIN: Final = 0.02
"""Seconds after which what could not be done is tried again: memory is short, the disk is full, or a large commit is
being applied."""
LONGEST: Final = 60.0
"""Seconds after which the clocks are looked at, also if nothing is due."""


class Work(Protocol):
    """What is done in passes."""

    def run(self) -> Steps:
        """Do all that is due."""

    def next_in(self) -> int | None:
        """Return after how many µs more is due; 0 for soon, None if nothing is."""


def passes_of(
    works: Mapping[str, Work],
    engine: Engine,
    run_blocking: RunBlocking,
    call_later: CallLater | None,
    on_failure: Callable[[str, BaseException], None],
) -> list[Passes]:
    """Return what makes passes for each work, by what it is called."""
    return [
        Passes(doing, engine, each.run, each.next_in, run_blocking, call_later, on_failure)
        for doing, each in works.items()
    ]


class Passes:
    """Makes passes, one at a time. ``make`` begins one; ``on_failure(doing, error)`` is called for what has failed with
    the engine.

    Without ``call_later`` a pass is made only by :meth:`wake`, and all at once.
    """

    log = Logger()

    def __init__(
        self,
        doing: str,
        engine: Engine,
        make: Callable[[], Steps],
        next_in: Callable[[], int | None],
        run_blocking: RunBlocking,
        call_later: CallLater | None,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._doing, self._engine = doing, engine
        self._make = make
        self.next_in = next_in
        """Returns after how many µs the next one is due, 0 for soon, None if nothing is."""
        self._run_blocking = run_blocking
        self._call_later = call_later
        self._on_failure = on_failure
        self._steps: Steps | None = None
        self._again = False
        self._timer: Cancellable | None = None
        self.stopped = False

    def wake(self) -> None:
        """Make a pass now, or once more behind the one that is under way."""
        if self._steps is not None:
            self._again = True
        elif not self.stopped:
            self._cancel_timer()
            self._steps = self._make()
            self._go_on(None)

    def stop(self) -> None:
        """Make no pass any more, and end the one that is under way."""
        self.stopped = True
        self._cancel_timer()
        self._steps = None

    def _go_on(self, result: Any, error: BaseException | None = None) -> None:
        steps = self._steps
        if steps is None:
            return
        try:
            while not self._engine.failed:
                work = steps.send(result) if error is None else steps.throw(error)
                result = error = None
                if work is not None:
                    self._run_blocking(work, self._go_on, partial(self._go_on, None))
                    return
                if self._call_later is not None:
                    self._call_later(0, self._go_on_later)
                    return
        except StopIteration:
            self._over()
        except Exception as failed:  # noqa: BLE001  (whatever it is, it must not stand still unnoticed)
            self._failed(failed)

    def _go_on_later(self) -> None:
        self._go_on(None)

    def _failed(self, error: BaseException) -> None:
        self._steps = None
        if self._engine.failed:
            self._on_failure(self._doing, error)
            return
        self.log.failure("{doing} failed; it is tried again in a second", Failure(error), doing=self._doing)
        self._set_timer(1.0)

    def _over(self) -> None:
        self._steps = None
        if self._again:
            self._again = False
            self.wake()
            return
        self._rest()

    def remind(self) -> None:
        """Note that something may be due earlier than it was."""
        if self._steps is None:
            self._rest()

    def _rest(self) -> None:
        waits = self.next_in()
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
