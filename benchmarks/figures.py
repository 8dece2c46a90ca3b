"""The figures of the benchmarks: the unit of each, the limit beside which it is shown, and its target."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from benchmarks.harness.frames import BATCH, BATCH_BYTES, SINGLE
from journal.constants import MIB
from journal.engine.settings import JournalSettings

POOL = JournalSettings().pool_bytes / MIB

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Target:
    """A target: at least, or at most, ``factor`` times the limit plus ``plus``."""

    text: str
    factor: float = 0.0
    plus: float = 0.0
    at_most: bool = False

    def is_met(self, value: float, limit: float) -> bool:
        bound = self.factor * limit + self.plus
        return value <= bound if self.at_most else value >= bound


@dataclass(frozen=True)
class Figure:
    """A figure. ``limit`` names the figure that bounds it, and ``scale`` converts that one's unit."""

    name: str
    unit: str
    limit: str = ""
    scale: float = 1.0
    target: Target | None = None
    worst: bool = False
    """Whether the greatest sample counts, instead of the median."""


@dataclass(frozen=True)
class Result:
    """A figure over all repeats: the median (or the worst, where that counts), and the range of the samples."""

    figure: Figure
    value: float
    least: float
    most: float
    limit: float | None

    @property
    def ratio(self) -> float | None:
        return None if not self.limit else self.value / self.limit

    @property
    def is_met(self) -> bool | None:
        """Return whether the target is met; None without a target, or without the limit that it needs."""
        target = self.figure.target
        if target is None or (target.factor and self.limit is None):
            return None
        return target.is_met(self.value, self.limit or 0.0)


def at_least(value: float) -> Target:
    return Target(f"≥ {value:,.0f}", plus=value)


def share(factor: float) -> Target:
    return Target(f"≥ {factor:g} × limit", factor)


FORCE_RATE = Figure("fdatasync after 4 KiB", "/s")
FORCE_P50 = Figure("fdatasync after 4 KiB, p50", "µs")
FORCE_P99 = Figure("fdatasync after 4 KiB, p99", "µs")
SEQUENTIAL = Figure("sequential, 4 MiB forced", "MB/s")
ECHO = Figure("bare Twisted echo, 64 clients", "round trips/s")
ECHO_P50 = Figure("bare Twisted echo, depth 1, p50", "µs")
LOOPBACK = Figure("loopback", "MB/s")
INTERPRETER = Figure("start of a bare interpreter", "s")
IMPORTS = Figure("start and imports of twistd and txbroker", "s")

SINGLES = Figure(
    "100 B singles, pipelined", "messages/s", SEQUENTIAL.name, 1e6 / len(SINGLE), at_least(100_000)
)
PARTITIONS = Figure(
    "100 B singles, 1,000 partitions", "messages/s", SINGLES.name, 1.0, Target("≥ 0.7 × one partition", 0.7)
)
DEPTH_1 = Figure(
    "depth 1, one client, p50",
    "µs",
    FORCE_P50.name,
    1.0,
    Target("≤ 2 × limit + 150", 2.0, 150.0, at_most=True),
)
DEPTH_1_P99 = Figure("depth 1, one client, p99", "µs", FORCE_P99.name)
CLIENTS = Figure("depth 1, 64 clients", "messages/s", ECHO.name, 1.0, share(0.6))
CLIENTS_P99 = Figure("depth 1, 64 clients, p99", "µs")
BATCHES = Figure(
    "batches of 100 × 100 B",
    "messages/s",
    SEQUENTIAL.name,
    1e6 * BATCH / len(BATCH_BYTES),
    at_least(1_000_000),
)
LARGE = Figure("batches of 64 × 1 KiB", "MB/s", SEQUENTIAL.name, 1.0, share(0.6))
ONE_PHASE = Figure("one-phase transactions, 64 clients", "/s", ECHO.name, 1.0, at_least(30_000))
TWO_PHASE = Figure("two-phase transactions, 64 clients", "/s", ECHO.name, 0.5, at_least(18_000))
SERVED = Figure("read back, served", "MB/s", LOOPBACK.name, 1.0, at_least(1_000))
DECODED = Figure(
    "read back, batches decoded",
    "messages/s",
    LOOPBACK.name,
    1e6 * BATCH / len(BATCH_BYTES),
    at_least(400_000),
)
DECODED_SINGLES = Figure(
    "read back, singles decoded", "messages/s", LOOPBACK.name, 1e6 / len(SINGLE), at_least(400_000)
)
CLIENT_SEND = Figure("Python client: send, p50", "µs", DEPTH_1.name)
CLIENT_ASYNC = Figure("Python client: send_async and flush", "messages/s", BATCHES.name)
CLIENT_CONSUME = Figure("Python client: consume", "messages/s", DECODED.name)


@dataclass(frozen=True)
class Rows:
    """The figures of rows that the Python client sends and reads, compressed in one way or plain."""

    sent: Figure
    read: Figure
    bytes: Figure
    sender: Figure
    broker: Figure
    reader: Figure

    @classmethod
    def of(cls, way: str) -> Rows:
        def figure(what: str, unit: str) -> Figure:
            return Figure(f"rows, {way}: {what}", unit, "" if way == "plain" else f"rows, plain: {what}")

        return cls(
            figure("sent", "messages/s"), figure("read", "messages/s"), figure("log", "% of the values"),
            figure("sender's processor", "µs/message"), figure("broker's processor", "µs/message"),
            figure("reader's processor", "µs/message"),
        )  # fmt: skip

    @property
    def all(self) -> tuple[Figure, ...]:
        return (self.sent, self.read, self.bytes, self.sender, self.broker, self.reader)


ROWS = {way: Rows.of(way) for way in ("plain", "zstd", "lz4")}
MEMORY = Figure(
    "resident memory at most", "MiB", worst=True,
    target=Target(f"≤ 120 + pool ({POOL:.0f})", plus=120 + POOL, at_most=True),
)  # fmt: skip
READY = Figure("ready on an empty directory", "s", IMPORTS.name, 1.0, Target("≤ 0.7", 0.0, 0.7, at_most=True))

ALL = (
    FORCE_RATE, FORCE_P50, FORCE_P99, SEQUENTIAL, ECHO, ECHO_P50, LOOPBACK, INTERPRETER, IMPORTS,
    SINGLES, PARTITIONS, DEPTH_1, DEPTH_1_P99, CLIENTS, CLIENTS_P99, BATCHES, LARGE, ONE_PHASE, TWO_PHASE,
    SERVED, DECODED, DECODED_SINGLES, CLIENT_SEND, CLIENT_ASYNC, CLIENT_CONSUME,
    *ROWS["plain"].all, *ROWS["zstd"].all, *ROWS["lz4"].all, MEMORY, READY,
)  # fmt: skip

assert len({figure.name for figure in ALL}) == len(ALL)
assert {figure.limit for figure in ALL} <= {"", *(figure.name for figure in ALL)}


def results(samples: Samples) -> list[Result]:
    """Return the results of the samples in the order of :data:`ALL`; figures without samples are left out."""
    found = []
    for figure in ALL:
        values = samples.get(figure.name)
        if values:
            limits = samples.get(figure.limit)
            limit = median(limits) * figure.scale if limits else None
            value = max(values) if figure.worst else median(values)
            found.append(Result(figure, value, min(values), max(values), limit))
    return found
