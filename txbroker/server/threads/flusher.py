"""The flusher: a thread that does the engine's slow work: tails to segments, checkpoints, journal files ahead
of need.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from journal.engine.engine import Engine
from journal.engine.jobs import Job
from txbroker.server.threads.journal_writer import OnFailure
from txbroker.server.threads.worker_thread import Worker


class Flusher:
    """Runs the jobs of the engine's housekeeping, in order. If one fails, the process must stop.

    No job runs after one that failed. Jobs that the thread got before the reactor learnt of the failure may depend on
    it. A checkpoint behind a failed force of logs would force them again and succeed, because the kernel reports a
    failure once; then it would claim messages that are not on disk.
    """

    def __init__(self, engine: Engine, worker: Worker, clock: IReactorTime, on_failure: OnFailure) -> None:
        self._engine = engine
        self._worker = worker
        self._clock = clock
        self._on_failure = on_failure
        self._failed = self._wanted = False
        self._broken = False
        """Whether a job has failed; the thread's own flag, set before the reactor learns of it."""
        self._running = 0
        self._idle: list[Deferred[None]] = []

    def want(self) -> None:
        """Check at the end of this turn: memory is short, or something else is due."""
        if not self._wanted:
            self._wanted = True
            self._clock.callLater(0, self.look)

    def look(self) -> None:
        """Give the thread what is due; called by the clock, and after every job."""
        self._wanted = False
        if self._failed:
            return
        engine = self._engine
        try:
            jobs = engine.jobs(engine.now())
        except Exception as error:  # noqa: BLE001  (jobs that were begun are lost with it, and would never end)
            self._fail("looking for what is due", error)
            return
        for job in jobs:
            self._running += 1
            failed = partial(self._fail, f"running {type(job).__name__}")
            self._worker.submit(partial(self._run, job), partial(self._done, job), failed)
        if not self._running:
            waiting, self._idle = self._idle, []
            for one in waiting:
                one.callback(None)

    def idle(self) -> Deferred[None]:
        """Return a Deferred that fires once nothing is due or under way; never after a failure."""
        waiting: Deferred[None] = Deferred()
        self._idle.append(waiting)
        self.want()
        return waiting

    def _run(self, job: Job) -> None:
        if not self._broken:
            self._broken = True
            job.run()
            self._broken = False

    def _done(self, job: Job, _: object) -> None:
        if self._failed:
            return
        self._running -= 1
        try:
            self._engine.finish(job)
        except Exception as error:  # noqa: BLE001  (files and state disagree: nothing may go on)
            self._fail(f"running {type(job).__name__}", error)
            return
        # else when the last one has returned: each would look through 10,000 partitions
        if not self._running:
            self.look()

    def _fail(self, doing: str, error: BaseException) -> None:
        self._failed = True
        self._engine.fail(f"{doing} failed: {error!r}")
        self._on_failure(doing, error)
