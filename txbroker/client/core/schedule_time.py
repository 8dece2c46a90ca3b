"""Schedule time at a client: by which messages that are due after a while are due (decision 0054)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from journal.arguments import NOTHING_SENT
from journal.due_time import After, At, due_time
from journal.formats.envelope import Clock
from txbroker.client.core.call import Call
from txbroker.client.core.phase import Phase
from txbroker.wire.messages import AskSchedule, ScheduleTold

FRESH: Final = 60_000_000
"""µs for which the client counts on by its own clock before it asks again."""


SLEPT: Final = 1.0
"""Seconds of sleep after which it does not go on with what it was told before."""


class Due(NamedTuple):
    """When a message is due, fixed: ``at`` in µs by that clock, ``ahead`` µs from the call on."""

    clock: Clock
    at: int
    ahead: int


class Asks(Protocol):
    """The part of the core that is needed to ask the broker."""

    phase: Phase
    clock: Callable[[], float]
    wall: Callable[[], int]

    def correlation(self) -> int:
        """Return a number for the next request."""

    def request(self, request: AskSchedule, expected: type[ScheduleTold], /) -> Call[ScheduleTold]:
        """Send a request."""


class ScheduleTime:
    """Schedule time, counted on by ``elapsed`` (seconds, also those in which the machine sleeps) from what the broker
    has told.

    What is counted is never less than the broker's at that moment, as far as the client's clock is right: it is more by
    at most the time that an answer took. So no message is due before its time has passed.
    """

    def __init__(self, core: Asks, elapsed: Callable[[], float]) -> None:
        self._core = core
        self._elapsed = elapsed
        self._beyond = 0
        """Schedule time minus the client's, in µs."""
        self._told_at = -FRESH
        self._slept = self._sleep()
        """For how many seconds the machine had slept when the broker told it last."""
        self._asking: Call[ScheduleTold] | None = None

    def _sleep(self) -> float:
        return self._elapsed() - self._core.clock()

    def moment(self) -> int:
        """Return the client's own time, in µs."""
        return int(self._elapsed() * 1e6)

    def told(self, schedule_time: int, asked_at: int) -> None:
        """Note what the broker has told, to a question of that moment. A slow answer does not replace a better one."""
        now = self.moment()
        if not schedule_time - now <= self._beyond <= schedule_time - asked_at:
            self._beyond = schedule_time - asked_at
        if now - asked_at <= FRESH:
            self._told_at, self._slept = now, self._sleep()

    def now(self) -> int:
        """Return schedule time, in µs; the broker is asked anew beside that, if it was long ago."""
        self._refresh()
        return self.moment() + self._beyond

    def _refresh(self) -> None:
        now = self.moment()
        if now - self._told_at > FRESH and self._core.phase is Phase.OPEN:
            self._ask(now)

    def _ask(self, now: int) -> None:
        if self._asking is not None and not self._asking.done:
            return
        call = self._core.request(AskSchedule(self._core.correlation()), ScheduleTold)
        self._asking = call

        def answered() -> None:
            if call.error is None:
                self.told(call.result().now, now)

        call.then(answered)

    async def due(self, after: After | None, at: At | None, state: str = NOTHING_SENT) -> Due | None:
        """Return when a message of this moment is due by what its caller gave; None if it is to be sent at once.

        It waits for the broker if the machine has slept since it was told: whether the broker's slept, too, and so how
        much of that time has passed there, only the broker knows. Raises as :func:`journal.due_time.due_time`.
        """
        if after is None and at is None:
            return None
        wall = self._core.wall()
        given = due_time(after, at, state, wall)
        assert given is not None
        if given.clock is Clock.WALL:
            return Due(given.clock, max(1, given.micros), given.micros - wall)
        moment = self.moment()
        while self._sleep() - self._slept > SLEPT:
            self._ask(self.moment())
            assert self._asking is not None
            await self._asking
        self._refresh()
        return Due(given.clock, given.micros + moment + self._beyond, given.micros)
