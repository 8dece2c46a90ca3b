"""The engine's cycle accept → write → force → publish, with write and force on a thread.

The reactor accepts while a group is being forced. When it is forced, the reactor publishes it in one turn, writes the
answers out and hands over the next group, which has filled meanwhile. No group waits for more records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from journal.engine.engine import Engine
from journal.errors import JournalPoisoned
from journal.wal.group import Group
from journal.wal.writer import Forced
from txbroker.broker.slow_forces import SLOW_FORCE, SlowForces
from txbroker.server.threads.force_thread import ForceThread
from txbroker.server.threads.worker_thread import Worker

OnFailure = Callable[[str, BaseException], None]
"""Called with the error and the failed step; the process must stop."""


class Writer:
    """Drives accept → write → force → publish: at most one group is under way, while the next one fills.

    ``before_publish`` and ``after_publish`` are called around each publishing, in the same turn: answers given in
    between are written to the connections together.
    """

    def __init__(
        self,
        engine: Engine,
        worker: Worker,
        clock: IReactorTime,
        before_publish: Callable[[], None],
        after_publish: Callable[[], None],
        on_failure: OnFailure,
        slow_forces: SlowForces,
        on_forced: Callable[[float], object],
        forcing: ForceThread | None = None,
    ) -> None:
        """``worker`` writes and forces what ``forcing`` does not: large groups, and those before which a file ends.
        ``on_forced`` is called with the seconds that each group took.
        """
        self._forcing = forcing
        self._engine = engine
        self._worker = worker
        self._clock = clock
        self._before_publish = before_publish
        self._after_publish = after_publish
        self._on_failure = on_failure
        self._slow_forces = slow_forces
        self._on_forced = on_forced
        self._at_work = False
        self._waits = False
        self._applying = False
        self._failed = False
        self._drained: list[Deferred[None]] = []
        engine.on_pending = self.wake

    def wake(self) -> None:
        """Take the records at the end of this turn, with all that this turn reads."""
        if not self._at_work and not self._failed:
            self._at_work = self._waits = True
            self._clock.callLater(0, self.take_now)

    def take_now(self) -> None:
        """Take the records that wait for the end of this turn, if there are any: the turns of the sessions are over.

        With the clock they would wait until the reactor has been round once more: 6 ms beside large requests.
        """
        if self._waits:
            self._waits = False
            self._next()

    def drained(self) -> Deferred[None]:
        """Return a Deferred that fires once everything accepted is forced and answered; never after a failure."""
        waiting: Deferred[None] = Deferred()
        self._drained.append(waiting)
        self.wake()
        return waiting

    def _next(self) -> None:
        engine = self._engine
        if self._failed or engine.failed:
            return
        self._go_on()
        group = engine.take()
        if group is not None:
            try:
                self._submit(group)
            except Exception as error:  # noqa: BLE001  (it is under way, and nobody would ever hear of it)
                self._fail(error)
            return
        self._at_work = False
        if not engine.busy:
            waiting, self._drained = self._drained, []
            for one in waiting:
                one.callback(None)

    def _submit(self, group: Group) -> None:
        if not group.count:  # only transient queues have changed: nothing is written
            self._clock.callLater(0, partial(self._show, group))
            return
        forcing = self._forcing
        placed = None if forcing is None else self._engine.place(group)
        if placed is None or forcing is None:
            self._worker.submit(partial(self._engine.write, group), partial(self._written, group), self._fail)
        else:
            forcing.submit(placed, partial(self._forced, group))

    def _forced(self, group: Group, forced: Forced) -> None:
        if self._failed:
            return
        try:
            took = self._engine.forced_alone(group, forced)
        except JournalPoisoned as error:
            self._fail(error)
        else:
            self._written(group, took)

    def _written(self, group: Group, took: float) -> None:
        if self._failed:
            return
        if took >= SLOW_FORCE:
            self._slow_forces.ended(took)
        self._on_forced(took)
        self._show(group)

    def _show(self, group: Group) -> None:
        if self._failed:
            return
        self._before_publish()
        try:
            self._engine.publish(group)
        except Exception as error:  # noqa: BLE001  (state and answers disagree: nothing may go on)
            self._fail(error, "publishing what was forced")
            return
        self._next()  # the disk works while the answers go out
        self._after_publish()

    def _schedule_slice(self) -> None:
        if not self._applying:
            self._applying = True
            self._clock.callLater(0, self._apply_slice)

    def _apply_slice(self) -> None:
        """Apply the next slice of a large commit, one each turn, so that connections are served in between."""
        self._applying = False
        if self._failed or not self._engine.busy:
            return
        self._before_publish()
        try:
            self._engine.continue_apply()
        except Exception as error:  # noqa: BLE001  (half a commit is applied: nothing may go on)
            self._fail(error, "applying a large commit")
            return
        self._after_publish()
        if self._at_work:
            self._go_on()
        else:
            self._at_work = True
            self._next()

    def _go_on(self) -> None:
        if self._engine.busy:
            self._schedule_slice()

    def _fail(self, error: BaseException, doing: str = "writing the journal") -> None:
        self._failed = True
        self._engine.fail(f"{doing} failed: {error}")
        self._on_failure(doing, error)
