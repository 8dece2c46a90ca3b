"""Requests that wait for messages of one queue, in the order in which they are served, and the share of each."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import Any

from txbroker.broker.fetches.stepwise_answers import MOST_AT_ONCE
from txbroker.broker.queues.consumers import Consumer
from txbroker.broker.sessions.session import Session, SessionState
from txbroker.wire.messages import TakeMessages


class Waiting:
    """A request that waits for messages until a journal time, for a consumer or (None) for nobody but its session.
    Unless it ``waits`` it is in line until what was accepted before it is forced.
    """

    __slots__ = (
        "command", "consumer", "is_ended", "is_forced", "is_in_line", "looks", "session", "timer", "until", "waits",
    )  # fmt: skip

    def __init__(
        self, session: Session, command: TakeMessages, until: int, consumer: Consumer | None, waits: bool
    ) -> None:
        self.session, self.command, self.until, self.consumer = session, command, until, consumer
        self.waits = waits
        self.is_in_line = False
        self.looks = False
        """Whether it is to be looked at when what was accepted before it is forced."""
        self.is_forced = False
        """Whether that was so."""
        self.is_ended = False
        """Whether it was cancelled, or its consumer has ended: it takes nothing more."""
        self.timer: Any = None

    @property
    def priority(self) -> int:
        """Those with a higher one are served first."""
        return 0 if self.consumer is None else self.consumer.priority

    @property
    def is_open(self) -> bool:
        """Whether it can be served now: its session goes on, and may have a further answer made and sent."""
        session = self.session
        return (
            session.state is not SessionState.CLOSED
            and not session.congested
            and session.making < MOST_AT_ONCE
        )


class TakeLine:
    """A line: those with the highest priority are in front, of these those that came first.

    Those of consumers that get no messages now rest behind it (``rests``).
    """

    def __init__(self) -> None:
        self._levels: dict[int, deque[Waiting]] = {}
        """Requests by the negative of their priority."""
        self._order: list[int] = []
        """The keys of these, sorted."""
        self._resting: dict[Waiting, None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._levels.values())) + len(self._resting)

    def __iter__(self) -> Iterator[Waiting]:
        for each in self._order:
            yield from self._levels[each]
        yield from self._resting

    def _level(self, waiting: Waiting) -> deque[Waiting]:
        place = -waiting.priority
        if place not in self._levels:
            self._levels[place] = deque()
            insort(self._order, place)
        return self._levels[place]

    def append(self, waiting: Waiting, rests: bool) -> None:
        """Put a request behind those of its priority."""
        if rests:
            self._resting[waiting] = None
        else:
            self._level(waiting).append(waiting)

    def put_back(self, waiting: Waiting) -> None:
        """Put a request before those of its priority."""
        self._level(waiting).appendleft(waiting)

    def pop(self) -> Waiting | None:
        """Take the first request out of the line; None if there is none that does not rest."""
        if not self._order:
            return None
        level = self._levels[self._order[0]]
        found = level.popleft()
        if not level:
            del self._levels[self._order.pop(0)]
        return found

    def remove(self, waiting: Waiting) -> bool:
        """Take a request out of the line; return whether it was in it."""
        if waiting in self._resting:
            del self._resting[waiting]
            return True
        place = -waiting.priority
        level = self._levels.get(place, ())
        if waiting not in level:
            return False
        assert isinstance(level, deque), "it has one"
        level.remove(waiting)
        if not level:
            del self._levels[place]
            self._order.remove(place)
        return True

    def wake(self, consumer: Consumer) -> None:
        """Put the requests into the line that rest for a consumer."""
        for each in [each for each in self._resting if each.consumer is consumer]:
            del self._resting[each]
            self._level(each).append(each)

    def of(self, consumer: Consumer) -> list[Waiting]:
        """Return the requests that wait for a consumer."""
        level = self._levels.get(-consumer.priority, ())
        return [each for each in (*level, *self._resting) if each.consumer is consumer]

    def is_before(self, priority: int) -> bool:
        """Return whether a request can be served now that is before one which comes with this priority."""
        places = (each for each in self._order if each <= -priority)
        return any(each.is_open for place in places for each in self._levels[place])

    def count_open(self, priority: int, most: int) -> int:
        """Return how many requests of a priority can be served now; not more than ``most``."""
        count = 0
        for each in self._levels.get(-priority, ()):
            if count >= most:
                break
            count += each.is_open
        return count


class Shares:
    """What each of several requests gets that wait with the same priority: as much as the others of what is ready,
    rounded up.
    """

    def __init__(self, line: TakeLine) -> None:
        self._line = line
        self._priority: int | None = None
        self._left = 0
        """Requests of this priority that are not served yet."""

    def next(self, waiting: Waiting, ready: int) -> int:
        """Return how many messages a request gets, the first in line, of those that are ready."""
        if waiting.priority != self._priority:
            self._priority = waiting.priority
            self._left = 1 + self._line.count_open(waiting.priority, ready)
        share = -(-ready // max(1, self._left))
        self._left -= 1
        return max(1, share)
