"""The counts of a process of the generator, and their form for travelling and adding up."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from txbroker.bench.histogram import Histogram, Packed
from txbroker.bench.phases import Phases
from txbroker.bench.plan import MICROS

SAMPLE = 16
"""One in so many latencies is shown while it runs; the report has all of them."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a process. ``p50`` and ``p99`` are of the latest operations, in µs."""

    done: int
    errors: int
    p50: int
    p99: int


class Counted(msgspec.Struct, kw_only=True):
    """The counts of a process. ``seconds`` are operations by whole second, ``unacknowledged`` are runs of messages.

    A run is (client, first, one past the last). ``sent`` is how many messages each client began to send, by its number.
    ``ended`` is when the last operation was over, in seconds after the measurement began.
    """

    done: int
    messages: int
    bytes: int
    ended: float
    seconds: dict[int, int]
    errors: dict[str, int]
    latency: Packed
    delivered: Packed | None
    phases: dict[str, dict[str, Packed]]
    sent: dict[int, int]
    unacknowledged: list[tuple[int, int, int]]
    busy: float


class Tally:
    """Counts operations that belong to the measurement: those that were to begin from ``begin`` on."""

    def __init__(self, begin: float) -> None:
        self.begin = begin
        self.done = self.messages = self.bytes = 0
        self.ended = 0.0
        self.latency = Histogram()
        self.delivered = Histogram()
        self.errors: Counter[str] = Counter()
        self.unacknowledged: list[tuple[int, int, int]] = []
        self.phases: dict[str, Phases] = {}
        self._seconds: Counter[int] = Counter()
        self._recent: deque[int] = deque(maxlen=1000)

    def operations(self, wanted: Sequence[float], now: float, messages: int, size: int) -> None:
        """Count operations that have succeeded: when they were to begin, and the messages and bytes of each."""
        begin, record = self.begin, self.latency.record
        counted = 0
        micros = 0
        for at in wanted:
            if at >= begin:
                counted += 1
                micros = int((now - at) * MICROS)
                record(micros)
        if not counted:
            return
        after = now - begin
        self._seconds[int(after)] += counted
        self.ended = after
        self.messages += counted * messages
        self.bytes += counted * size
        before, self.done = self.done, self.done + counted
        if before // SAMPLE != self.done // SAMPLE or before < SAMPLE:
            self._recent.append(micros)

    def read(self, now: float, messages: int, size: int, fetches: Sequence[int]) -> None:
        """Count messages and bytes that were read, by fetches that took that long (µs)."""
        after = now - self.begin
        self.done += messages
        self.messages += messages
        self.bytes += size
        self.ended = after
        self._seconds[int(after)] += messages
        for micros in fetches:
            self.latency.record(micros)
        self._recent.extend(fetches)

    def failed(self, wanted: float, error: BaseException) -> None:
        """Count a failed operation; failures in the warm-up count as well."""
        self.errors[type(error).__name__] += 1
        self.ended = max(self.ended, 0.0, wanted - self.begin)

    def phases_of(self, request: str) -> Phases:
        """Return the phases of that kind of request."""
        if request not in self.phases:
            self.phases[request] = Phases()
        return self.phases[request]

    def progress(self) -> Progress:
        """Return the progress."""
        recent = sorted(self._recent)
        p50, p99 = (recent[int(share * (len(recent) - 1))] for share in (0.5, 0.99)) if recent else (0, 0)
        return Progress(self.done, self.errors.total(), p50, p99)

    def counted(self, sent: dict[int, int], busy: float) -> Counted:
        """Return all counts, to be sent."""
        return Counted(
            done=self.done,
            messages=self.messages,
            bytes=self.bytes,
            ended=self.ended,
            seconds=dict(self._seconds),
            errors=dict(self.errors),
            latency=self.latency.packed(),
            delivered=self.delivered.packed() if self.delivered.count else None,
            phases={request: phases.packed() for request, phases in self.phases.items()},
            sent=sent,
            unacknowledged=self.unacknowledged,
            busy=busy,
        )
