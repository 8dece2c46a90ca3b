"""Waits that can be given up: alarms that are removed when they are not needed, and lines of waiting callers.

Every wait of every client is a place in a :class:`Line`. So callers are woken in their order, one at a time, and only
while there is something to take. A caller that gives up (cancelled, interrupted, or out of time) leaves no place behind
and takes nothing along.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from journal.arguments import seconds
from txbroker.client.core.promise import Promise

MOST_AT_ONCE: Final = 200
"""How many turns one call of :meth:`Line.move` gives; on an event loop other tasks run in between. 200 senders of
4 KB, which resume within the call, take it about 4 ms."""


def until(clock: Callable[[], float], timeout: float | None) -> float:
    """Return when a wait of ``timeout`` seconds (None: for ever) ends by a clock; raises ``WrongType``,
    ``WrongValue``.
    """
    return math.inf if timeout is None else clock() + seconds("timeout", timeout, "nothing was taken")


class Alarm:
    """A call at a time. ``at`` is in seconds of the core's clock."""

    __slots__ = ("_alarms", "at", "call")

    def __init__(self, alarms: Alarms, at: float, call: Callable[[], object]) -> None:
        self.at = at
        self.call: Callable[[], object] | None = call
        self._alarms = alarms

    def cancel(self) -> None:
        """Cancel the call. Does nothing if it was called or cancelled already."""
        if self.call is not None:
            self.call = None
            self._alarms.cancelled()


class Alarms:
    """Calls at times, soonest first. Cancelled ones are removed in bulk, when they are half of all."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._made = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def set(self, at: float, call: Callable[[], object]) -> Alarm:
        """Have ``call`` called by :meth:`ring` at ``at`` or later; calls of one time in their order."""
        alarm = Alarm(self, at, call)
        self._made += 1
        heappush(self._heap, (at, self._made, alarm))
        return alarm

    def cancelled(self) -> None:
        """Note that an alarm has been cancelled."""
        self._cancelled += 1
        if 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapify(self._heap)
            self._cancelled = 0

    @property
    def next(self) -> float:
        """Return when the next alarm is due; infinity if there is none."""
        heap = self._heap
        while heap and heap[0][2].call is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else math.inf

    def ring(self, now: float) -> None:
        """Make the calls that are due."""
        while self.next <= now:
            alarm = heappop(self._heap)[2]
            call, alarm.call = alarm.call, None
            if call is not None:
                call()

    def clear(self) -> list[Callable[[], object]]:
        """Remove all alarms; return what they would have called."""
        heap, self._heap, self._cancelled = self._heap, [], 0
        calls = []
        for _, _, alarm in sorted(heap, key=lambda entry: entry[:2]):
            if alarm.call is not None:
                calls.append(alarm.call)
                alarm.call = None
        return calls


class Turn(Promise[bool]):
    """A place in a line: True once its turn has come, False if time ran out before.

    The owner of a place must call :meth:`leave` in every case: until then no place behind it gets a turn. As a context
    manager it does so at its end.
    """

    __slots__ = ("_alarm", "_line")

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._alarm: Alarm | None = None

    def join(self, deadline: float = math.inf) -> None:
        """Get in line, until ``deadline`` at most."""
        self._line._join(self, deadline)

    def leave(self) -> None:
        """Give up the place, or the turn, for the next in line. Does nothing the second time."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._line._left(self)

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.leave()
        except BaseException:
            self.leave()  # an interrupt came in there: it is done again
            raise

    def _wait_until(self, alarm: Alarm) -> None:
        self._alarm = alarm

    def run_out(self) -> None:
        """Give up the place because time has run out, unless the turn has come."""
        if not self.done:
            self._line._left(self)
            self.resolve(False)


class Line:
    """The callers that wait for one thing, first come, first served.

    ``may_go_on`` says whether there is something for the first one; call :meth:`move` when that may have changed.
    ``soon`` has a call made in a later turn of the loop or thread that drives the core.
    """

    def __init__(
        self, may_go_on: Callable[[], bool], alarms: Alarms, soon: Callable[[Callable[[], object]], object]
    ) -> None:
        self._may_go_on = may_go_on
        self._alarms = alarms
        self._soon = soon
        self._waiting: dict[Turn, None] = {}
        self._on: Turn | None = None
        self._granting: Turn | None = None
        self._is_due = False

    @property
    def is_free(self) -> bool:
        """Whether no caller waits and none has the turn."""
        return self._on is None and not self._waiting

    @property
    def may_go_on(self) -> bool:
        """Whether there is something for the caller that has the turn."""
        return self._may_go_on()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, deadline: float = math.inf) -> Turn:
        """Get in line, until ``deadline`` at most. The turn may come at once."""
        turn = self.turn()
        turn.join(deadline)
        return turn

    def turn(self) -> Turn:
        """Return a place that is not in line yet, for a caller that must be able to leave it wherever joining is
        interrupted.
        """
        return Turn(self)

    def _join(self, turn: Turn, deadline: float) -> None:
        self._waiting[turn] = None
        self.move()
        if not turn.done and deadline < math.inf:
            turn._wait_until(self._alarms.set(deadline, turn.run_out))

    def clear(self) -> None:
        """Drop all places; for a line of one thread that comes anew, because it may have been interrupted before."""
        waiting, self._waiting, self._on = self._waiting, {}, None
        self._is_due = False
        for turn in waiting:
            turn.leave()

    def move(self) -> None:
        """Give the turn to the first in line, if no caller has it and there is something to take; repeat for
        the next.
        """
        if self._on is not None and not self._on.done:
            self._grant(self._on)  # an interrupt came there
        left = MOST_AT_ONCE
        while self._waiting and self._on is None and self._may_go_on():
            if not left:
                self.move_soon()
                return
            left -= 1
            self._on = next(iter(self._waiting))
            try:
                self._grant(self._on)
            except BaseException:
                self.move_soon()  # raised by a caller that resumed: the others must not wait for ever
                raise

    def _grant(self, turn: Turn) -> None:
        self._granting = turn
        self._waiting.pop(turn, None)
        if turn._alarm is not None:
            turn._alarm.cancel()
        turn.resolve(True)
        self._granting = None

    def mend(self) -> None:
        """Repair after an interrupt: no caller keeps a turn from one call to the next, and no later turn is
        under way.
        """
        self._is_due = False
        if self._on is not None and self._on.done:
            self._on = None
        self.move()

    def move_soon(self) -> None:
        """Have :meth:`move` called in a later turn, so that the present caller returns before others resume."""
        if not self._is_due:
            self._is_due = True
            self._soon(self._move_now)

    def _move_now(self) -> None:
        self._is_due = False
        self.move()

    def _left(self, turn: Turn) -> None:
        self._waiting.pop(turn, None)
        if self._on is turn:
            self._on = None
            if turn is not self._granting:  # else the loop above goes on
                self.move()


class Waits:
    """All waits of one client: for a time, for a turn, or for the next call of :meth:`ring`.

    ``clock`` gives seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.alarms = Alarms()
        self._clock = clock
        self._called_soon: list[Callable[[], object]] = []

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        promise: Promise[None] = Promise()
        alarm = self.alarm(seconds, lambda: promise.resolve(None))
        try:
            await promise
        finally:
            alarm.cancel()

    def alarm(self, seconds: float, call: Callable[[], object]) -> Alarm:
        """Have ``call`` called in ``seconds``, unless the alarm is cancelled; at once when the client stops."""
        return self.alarms.set(self._clock() + seconds, call)

    def line(self, may_go_on: Callable[[], bool]) -> Line:
        """Return a line of callers that wait for the same thing."""
        return Line(may_go_on, self.alarms, self.soon)

    def soon(self, call: Callable[[], object]) -> None:
        """Have ``call`` called by the next :meth:`ring`, which is due at once."""
        self._called_soon.append(call)

    @property
    def next(self) -> float:
        """Return when :meth:`ring` should be called next; infinity if nothing is due."""
        return self._clock() if self._called_soon else self.alarms.next

    def ring(self, now: float) -> None:
        """Do what is due."""
        self._call_soon()
        self.alarms.ring(now)

    def end(self) -> None:
        """Stop the client: all waits for a time or a turn are due."""
        for ring in self.alarms.clear():
            ring()
        while self._called_soon:
            self._call_soon()

    def _call_soon(self) -> None:
        soon, self._called_soon = self._called_soon, []
        for number, call in enumerate(soon, 1):
            try:
                call()
            except BaseException:
                self._called_soon[:0] = soon[number:]  # the others must not wait for ever
                raise
