"""The engine's slow work on a thread: tails to segments, checkpoints, journal files made ahead of need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from journal.housekeeping import Housekeeping, Job
from txbroker.lane import IsLane
from txbroker.writer import OnFailure


class Flusher:
    """Runs what housekeeping finds due, in order. Which failures end the process is for housekeeping to say.

    ``now`` is journal time.
    """

    def __init__(
        self,
        housekeeping: Housekeeping,
        now: Callable[[], int],
        lane: IsLane,
        clock: IReactorTime,
        on_failure: OnFailure,
    ) -> None:
        self._housekeeping = housekeeping
        self._now = now
        self._lane = lane
        self._clock = clock
        self._on_failure = on_failure
        self._failed = self._wanted = False
        self._running = 0
        self._idle: list[Deferred[None]] = []

    def want(self) -> None:
        """Memory is short, or something else is due: look at the end of this turn."""
        if not self._wanted:
            self._wanted = True
            self._clock.callLater(0, self.look)

    def look(self) -> None:
        """Give the thread what is due; called by the clock, and after every job."""
        self._wanted = False
        if self._failed:
            return
        housekeeping = self._housekeeping
        for job in housekeeping.jobs(self._now()) + housekeeping.take_collection():
            self._running += 1
            self._lane.submit(job.run, partial(self._done, job), partial(self._failed_in_thread, job))
        if not self._running:
            waiting, self._idle = self._idle, []
            for one in waiting:
                one.callback(None)

    def idle(self) -> Deferred[None]:
        """Fires once nothing is due and nothing is under way; never after a failure."""
        waiting: Deferred[None] = Deferred()
        self._idle.append(waiting)
        self.want()
        return waiting

    def _failed_in_thread(self, job: Job, error: BaseException) -> None:
        if isinstance(error, Exception):
            job.error = error
            self._done(job, None)
        else:
            self._fail(job, error)

    def _done(self, job: Job, _: object) -> None:
        self._running -= 1
        try:
            self._housekeeping.finish(job)
        except Exception as error:  # noqa: BLE001  (files and state disagree: nothing may go on)
            self._fail(job, error)
            return
        self.look()

    def _fail(self, job: Job, error: BaseException) -> None:
        self._failed = True
        self._on_failure(f"running {type(job).__name__}", error)
