"""The goals of the comparison: the loads in the order of the report, and the targets of this project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.peers.contender import Measure

OWN = "txbroker"
KAFKA = "Kafka, flush.messages=1"
NATS = "NATS JetStream"
RABBITMQ = "RabbitMQ quorum queue"
REDIS = "Redis streams"
POSTGRESQL = "PostgreSQL"
ARTEMIS = "Artemis"
ARTEMIS_XA = "Artemis, XA in one phase"


@dataclass(frozen=True)
class Load:
    """A load; with ``by_latency`` its figure is the median latency, and less of it is better."""

    key: str
    title: str
    unit: str
    by_latency: bool = False


LOADS = (
    Load("batches", "100 B in the client's batches", "messages/s"),
    Load("large-batches", "1 KiB in the client's batches", "messages/s"),
    Load("singles", "100 B singles, pipelined", "messages/s"),
    Load("depth-1", "100 B, one at a time: p50", "ms", by_latency=True),
    Load("one-phase", "transactions of 1 message, 64 clients", "transactions/s"),
    Load("one-phase-10", "transactions of 10 messages, 64 clients", "transactions/s"),
    Load("two-phase", "two-phase transactions, 64 clients", "transactions/s"),
    Load("python-send", "sent from Python", "messages/s"),
    Load("python-read", "read from Python", "messages/s"),
)
BY_KEY = {load.key: load for load in LOADS}


@dataclass(frozen=True)
class Result:
    """The result of one system under one load, over all repeats; latencies are medians, in seconds."""

    load: Load
    system: str
    samples: tuple[float, ...]
    p50: float | None
    p99: float | None

    @property
    def value(self) -> float:
        """Return the median, in the load's unit."""
        return median(self.samples)


Results = Mapping[tuple[str, str], Result]
"""Results by the key of the load and the name of the system."""


def result(load: Load, system: str, measures: list[Measure]) -> Result:
    """Return the result of a system's samples under one load."""
    p50s = [one.p50 for one in measures if one.p50 is not None]
    p99s = [one.p99 for one in measures if one.p99 is not None]
    samples = tuple(at * 1000 for at in p50s) if load.by_latency else tuple(one.rate for one in measures)
    return Result(load, system, samples, median(p50s) if p50s else None, median(p99s) if p99s else None)


@dataclass(frozen=True)
class Goal:
    """A goal: ours is at least (``at_most``: at most) ``factor`` times the best of ``others``; or ``bound``, without
    others.

    ``of_latency`` compares the median latency in milliseconds instead of the load's figure.
    """

    load: str
    text: str
    others: tuple[str, ...] = ()
    factor: float = 1.0
    bound: float = 0.0
    at_most: bool = False
    of_latency: bool = False

    def beside(self, results: Results) -> float | None:
        """Return the figure that ours is compared with; None if one of the others has none."""
        if not self.others:
            return self.bound
        values = [results[self.load, other].value for other in self.others if (self.load, other) in results]
        if len(values) < len(self.others):
            return None
        return self.factor * (min(values) if self.at_most else max(values))

    def own(self, results: Results) -> float | None:
        """Return our figure; None without one."""
        found = results.get((self.load, OWN))
        if found is None:
            return None
        if self.of_latency:
            return None if found.p50 is None else found.p50 * 1000
        return found.value

    def is_met(self, results: Results) -> bool | None:
        """Return whether the goal is met; None if a figure is missing."""
        own, beside = self.own(results), self.beside(results)
        if own is None or beside is None:
            return None
        return own <= beside if self.at_most else own >= beside


GOALS = (
    Goal("batches", "≥ 1.2 × Kafka, forced", (KAFKA,), 1.2),
    Goal("batches", "at a median under 20 ms", bound=20.0, at_most=True, of_latency=True),
    Goal("large-batches", "≥ 1.5 × Kafka, forced", (KAFKA,), 1.5),
    Goal("singles", "ahead of NATS, RabbitMQ and Artemis", (NATS, RABBITMQ, ARTEMIS)),
    Goal("depth-1", "≤ 1.5 × Redis", (REDIS,), 1.5, at_most=True),
    Goal("depth-1", "ahead of Kafka and RabbitMQ", (KAFKA, RABBITMQ), at_most=True),
    Goal("one-phase", "≥ 2 × the best of PostgreSQL, Artemis and Kafka", (POSTGRESQL, ARTEMIS, KAFKA), 2.0),
    Goal("one-phase-10", "≥ 2.5 × Artemis XA", (ARTEMIS_XA,), 2.5),
    Goal("two-phase", "≥ 2 × Artemis XA", (ARTEMIS,), 2.0),
    Goal("two-phase", "≥ 3 × PostgreSQL", (POSTGRESQL,), 3.0),
    Goal("python-send", "≥ 150,000/s", bound=150_000),
    Goal("python-send", "≥ 5 × nats-py", (NATS,), 5.0),
    Goal("python-send", "ahead of confluent-kafka, forced", (KAFKA,)),
    Goal("python-read", "≥ 3 × redis-py XREAD", (REDIS,), 3.0),
)
