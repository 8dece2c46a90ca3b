"""The scheduler: one line of sessions for the reactor's time, so that none can keep it from the others.

It is deficit round robin with two lists, as in FQ-CoDel (RFC 8290, section 4) without its drops: a session that was
idle is served before those with backlog. The shared quantity is *work*: bytes, and :data:`REQUEST` for each request and
message, so that it can be counted; time is only a limit.

FQ-CoDel forgets a queue that is empty. Here a session that leaves the line keeps what it owes: its backlog is in its
socket, which is not read while it is in line, and it would be new again with every read. The debt is paid by its share
of the work that is done for all until it comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime

from journal.constants import KIB

QUANTUM: Final = 64 * KIB
"""The work that a session may have done in a turn."""

REQUEST: Final = 200
"""The work that a request counts for beside its bytes, and each frame that has to be checked by itself."""

TURN: Final = 0.0005
"""Seconds after which a turn ends while others wait, whatever work is left of it."""

STINT: Final = 0.002
"""Seconds after which the reactor gets its turn."""

AT_ONCE: Final = 4 * QUANTUM
"""The work that is done as it comes, without getting in line, until the reactor has been round."""


PATIENCE: Final = 16 * QUANTUM
"""The work that is done for sessions that were idle before one with backlog has a turn."""


class Flow:
    """The pending work of one session. ``in_line``: it waits for a turn; ``more``: its last turn left something.

    ``deficit`` is the work that it may have done; below 0 it is what it owes. ``left_at`` is how much had been done for
    all when it left the line.
    """

    deficit = QUANTUM
    left_at = 0
    in_line = more = False

    def take_turn(self, most: int) -> int:
        """Carry out work, set ``more`` if any is left; return the work done.

        After ``most`` work, or when :meth:`Scheduler.goes_on` returns False, no more is begun. Raises nothing.
        """
        raise NotImplementedError

    def leaves(self) -> None:
        """Note that all work has been carried out."""


class Scheduler:
    """The line. ``clock`` is the reactor: it calls :meth:`run` again and again while any session is in line.

    ``busy``: a session with work has to get in line. If not, work is done as it comes: set ``until`` to 0 then, and add
    the work to ``at_once``.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._seconds: Callable[[], float] = clock.seconds
        self._new: deque[Flow] = deque()
        self._old: deque[Flow] = deque()
        self._done = self._ahead = 0
        """The work that was done for all together."""
        self._is_due = self._holds = self._running = False
        self.busy = False
        self.on_rest: Callable[[], object] = lambda: None
        """Called when turns have been given out, and the reactor has its own now."""
        self.at_once = 0
        self.until = 0.0
        """When the turn under way ends, by the clock's seconds; 0 if that is a stint from when it is first
        asked for.
        """

    def goes_on(self) -> bool:
        """Return whether the turn under way has time left."""
        now = self._seconds()
        if not self.until:
            self.until = now + STINT
        return now < self.until

    @property
    def waiting(self) -> int:
        """How many sessions are in line."""
        return sum(flow.in_line for flow in (*self._new, *self._old))

    def have_the_reactor_go_round(self) -> None:
        """Have later work get in line, until the reactor's next round: more than :data:`AT_ONCE` was done as it
        came.
        """
        self.busy = True
        self._come_again()

    def add(self, flow: Flow) -> None:
        """Put a session in line, before those with backlog unless it owes more than a quantum."""
        if not flow.in_line:
            self._settle(flow)
            self._put(flow, self._new)

    def begun(self, flow: Flow) -> None:
        """Put a session in line that has had a turn as it came."""
        if not flow.in_line:
            self._put(flow, self._old)

    def charge(self, flow: Flow, work: int) -> None:
        """Count work that was done as it came for a session that is not in line."""
        if not flow.in_line:
            self._settle(flow)
        self._done += work
        flow.deficit -= work
        flow.left_at = self._done

    def _settle(self, flow: Flow) -> None:
        """Give a session its share of the work done since it left, as if all sessions in line had been there too."""
        share = (self._done - flow.left_at) // (len(self._new) + len(self._old) + 1)
        flow.deficit = min(QUANTUM, flow.deficit + share)
        flow.left_at = self._done

    def _put(self, flow: Flow, line: deque[Flow]) -> None:
        flow.in_line = self.busy = True
        line.append(flow)
        self._come_again()

    def _come_again(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._clock.callLater(0, self._again)

    def _again(self) -> None:
        self._is_due = self.busy = False
        self.at_once = 0
        self.run()

    def hold(self) -> None:
        """Make sessions that get in line wait for :meth:`release`, which the caller promises to call in this turn."""
        if not (self._new or self._old):
            self.busy = False  # a force is reported in its own round
        self.at_once = 0
        self._holds = not self._is_due
        self._is_due = True

    def release(self) -> None:
        """Give out turns to sessions that came since :meth:`hold`, unless a round of the reactor is due for them."""
        if self._holds:
            self._holds = self._is_due = False
            self.run()

    def run(self) -> None:
        """Give out turns until no session is in line, or the reactor must have its own."""
        if self._running or not (self._new or self._old):
            return
        self._running = True
        stop = self._seconds() + STINT
        try:
            while self._new or self._old:
                now = self._seconds()
                if now >= stop:
                    break
                self._give_turn(now, stop)
        finally:
            self._running = False
            self.busy = bool(self._new or self._old) or self.at_once > AT_ONCE
            if self._new or self._old:
                self._come_again()
        self.on_rest()

    def _give_turn(self, now: float, stop: float) -> None:
        new, old = self._new, self._old
        line = new if new and (self._ahead < PATIENCE or not old) else old
        flow = line.popleft()
        if flow.deficit <= 0:
            flow.deficit += QUANTUM
            old.append(flow)
            return
        self.until = min(stop, now + TURN) if new or old else stop
        work = flow.take_turn(flow.deficit)
        flow.deficit -= work
        self._done += work
        self._ahead = self._ahead + work if line is new else 0
        if flow.more:
            old.append(flow)
        else:
            flow.in_line = False
            flow.left_at = self._done
            flow.leaves()
