"""The times of a request's phases, for clients that ask for them with each request; others cost no further step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from journal.wal.group import GroupTimes
from txbroker.broker.sessions.session import Session
from txbroker.wire.codec import encode
from txbroker.wire.messages import Timed, TimedAnswer, Times

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class _Answer(NamedTuple):
    """The coming answer of a request. ``applied``: it is a large commit, shown later than its group."""

    session: Session
    correlation: int
    answer: Any
    begun: int
    queued: int
    group: GroupTimes | None
    applied: bool


class Timing:
    """The meaning of Timed, over the ``handlers`` of the requests that it may hold."""

    def __init__(
        self, engine: Engine, handlers: Mapping[type, Callable[[Session, Any, memoryview], Any]]
    ) -> None:
        self._engine = engine
        self._handlers = handlers
        self._now = engine.clock.monotonic

    def carry_out(self, session: Session, command: Timed, data: memoryview) -> None:
        """Judge the request as if it had come alone, and answer with its times; refusals are answered as usual."""
        begun = self._now()
        answer = self._handlers[type(command.request)](session, command.request, data)
        engine = self._engine
        times = engine.newest_times()
        timed = _Answer(session, command.correlation, answer, begun, self._now(), times, engine.busy)
        engine.when_forced(self._answer, timed)

    def _answer(self, timed: _Answer) -> None:
        times = _times(timed, self._now())
        timed.session.deliver(encode(TimedAnswer(timed.correlation, timed.answer, times)))


def _times(timed: _Answer, now: int) -> Times:
    """Return the times of a request answered ``now``; phases that it did not go through took none."""
    group, stamps = timed.group, [timed.queued]
    if group is None:  # all was forced already, as for a repeated send: it waited for nothing
        return Times(timed.queued - timed.begun, 0, 0, 0, 0, now - timed.queued)
    for at in (group.begun, group.written, group.forced, now if timed.applied else group.shown, now):
        # A request may join a group that is being written, which has the send that it repeats.
        stamps.append(max(at, stamps[-1]))
    phases = (after - before for before, after in pairwise(stamps))
    return Times(timed.queued - timed.begun, *phases)
