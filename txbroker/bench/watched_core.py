"""The watched core is a client's core that times its requests, and reads what the broker says of their time."""

from __future__ import annotations

import random
import time
from math import inf
from typing import NamedTuple

from txbroker.bench.plan import MICROS
from txbroker.client.core.core import Core
from txbroker.client.core.login import Credentials
from txbroker.client.core.options import Options
from txbroker.wire.codec import Decoder
from txbroker.wire.messages import (
    MAX_ANSWER_HEAD,
    AnyAnswer,
    Commit,
    Fetch,
    Fetched,
    Prepare,
    Request,
    Send,
    Timed,
    TimedAnswer,
    Times,
)

MAX_DATA = 1 << 30


class Trip(NamedTuple):
    """The times of one request: when it was given to the connection (s), and how long its answer took to arrive and be
    read (µs).
    """

    posted: float
    round_trip: int
    times: Times


class WatchedCore(Core):
    """A core whose sends, prepares and commits ask where their time goes, if ``timed``.

    ``newest`` is the correlation number of the last such request. ``fetches`` collects how long each fetch took, in µs.
    """

    def __init__(self, options: Options, timed: bool, login: Credentials | None) -> None:
        super().__init__(options, time.monotonic, random.random, lambda: time.time_ns() // 1000, login)
        self.newest = 0
        self.fetches: list[int] = []
        self._timed = timed
        self._posted: dict[int, float] = {}
        self._trips: dict[int, Trip] = {}

    def packed(self, request: Request, data: bytes | memoryview) -> bytes:
        """Pack a request, note the time, and ask the broker for its own times."""
        if self._timed and isinstance(request, Send | Prepare | Commit):
            self.newest = request.correlation
            self._posted[self.newest] = self.clock()
            request = Timed(self.newest, request)
        elif type(request) is Fetch:
            self._posted[request.correlation] = self.clock()
        return super().packed(request, data)

    def connected(self) -> None:
        """Begin again after a connection; requests under way will be sent again, or asked for."""
        super().connected()
        self._posted.clear()
        self.answers.decoder = _Unwrapping(self)

    def answered(self, head: AnyAnswer) -> AnyAnswer:
        """Note what an answer says of its time; return the answer that the client waits for."""
        posted = self._posted.pop(head.correlation, None)
        if type(head) is TimedAnswer:
            if posted is not None:
                trip = Trip(posted, int((self.clock() - posted) * MICROS), head.times)
                self._trips[head.correlation] = trip
            return head.answer
        if type(head) is Fetched and posted is not None:
            self.fetches.append(int((self.clock() - posted) * MICROS))
        return head

    def trip(self, correlation: int) -> Trip | None:
        """Return the times of an answered request, once."""
        return self._trips.pop(correlation, None)


class _Unwrapping(Decoder[AnyAnswer]):
    """A decoder that gives each answer in the form that its client expects."""

    def __init__(self, core: WatchedCore) -> None:
        super().__init__(AnyAnswer, MAX_DATA, MAX_ANSWER_HEAD)  # type: ignore[arg-type]
        self._answered = core.answered

    def feed(self, data: bytes, work: float = inf, each: int = 0) -> list[tuple[AnyAnswer, memoryview]]:
        """Decode bytes as any decoder does."""
        answered = self._answered
        return [(answered(head), body) for head, body in super().feed(data, work, each)]
