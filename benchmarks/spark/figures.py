"""The figures of one run: medians with their spread, beside each other, and beside their targets."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from benchmarks.spark.audits import Audited, Ledger
from benchmarks.spark.reads import WAYS, Reads
from benchmarks.spark.rows import Shape
from benchmarks.spark.session import Sample
from benchmarks.spark.writes import SINKS, Writes

OURS: Final = ("directory", "broker")
LEAST_VALUES: Final = 1_500_000
"""The targets in rows a second, of 100 bytes with value only."""
SHARE_OF_PARQUET: Final = 0.5
LEAST_WRITTEN: Final = 150_000
MOST_SECONDS: Final = 60
"""The target in seconds for the audit of 10 million messages."""


class Rate(NamedTuple):
    """Rows a second in one way; ``cost`` is µs of processor time for each row, of all processes that took part.

    ``kafka`` and ``parquet``: how many times as fast as these; None where they were not measured.
    """

    shape: Shape
    columns: str
    way: str
    value: float
    least: float
    most: float
    cost: float
    kafka: float | None
    parquet: float | None
    target: str = ""
    is_met: bool | None = None

    @property
    def megabytes(self) -> float:
        """Return MB of values a second."""
        return self.value * self.shape.bytes / 1e6


class Duration(NamedTuple):
    """The audits of one ledger; ``memory`` is the greatest of all of them."""

    ledger: Ledger
    value: float
    least: float
    most: float
    whole: float
    memory: int
    processor: float
    log: int
    target: str = ""
    is_met: bool | None = None


def of_reads(reads: Reads) -> list[Rate]:
    """Return a line for each shape, choice of columns and way."""
    found: list[Rate] = []
    for shape, columns in dict.fromkeys((shape, columns) for shape, columns, _ in reads):
        lines = {
            way: _rate(shape, columns, way, reads[shape, columns, way])
            for way in WAYS
            if (shape, columns, way) in reads
        }
        kafka, parquet = lines["kafka"].value, lines["parquet"].value
        for line in lines.values():
            beside = line._replace(kafka=line.value / kafka, parquet=line.value / parquet)
            found.append(beside if line.way not in OURS else _judged_read(beside))
    return found


def _judged_read(line: Rate) -> Rate:
    assert line.kafka is not None
    assert line.parquet is not None
    target, met = f"≥ Kafka, ≥ {SHARE_OF_PARQUET:g} × Parquet", line.kafka >= 1
    met &= line.parquet >= SHARE_OF_PARQUET
    if line.columns == "value" and line.shape.bytes == 100:
        target, met = f"≥ {LEAST_VALUES:,}/s, {target}", met and line.value >= LEAST_VALUES
    return line._replace(target=target, is_met=met)


def of_writes(writes: Writes) -> list[Rate]:
    """Return a line for each shape and sink."""
    found: list[Rate] = []
    for shape in dict.fromkeys(shape for shape, _ in writes):
        lines = {sink: _rate(shape, "sink", sink, writes[shape, sink]) for sink in SINKS}
        for line in lines.values():
            beside = line._replace(kafka=line.value / lines["kafka"].value)
            if line.way == "txbroker" and shape.bytes == 100:
                beside = beside._replace(target=f"≥ {LEAST_WRITTEN:,}/s", is_met=line.value >= LEAST_WRITTEN)
            found.append(beside)
    return found


def of_audits(audits: dict[Ledger, list[Audited]]) -> list[Duration]:
    """Return a line for each ledger."""
    found: list[Duration] = []
    for ledger, samples in audits.items():
        seconds = [each.seconds for each in samples]
        whole, memory = median(each.whole for each in samples), max(each.memory for each in samples)
        line = Duration(
            ledger,
            median(seconds),
            min(seconds),
            max(seconds),
            whole,
            memory,
            median(each.processor for each in samples),
            samples[0].log,
        )
        if ledger.transactions == 1000:
            line = line._replace(target=f"≤ {MOST_SECONDS} s", is_met=line.value <= MOST_SECONDS)
        found.append(line)
    return found


def _rate(shape: Shape, columns: str, way: str, samples: Sequence[Sample]) -> Rate:
    rates = [shape.rows / each.seconds for each in samples]
    cost = median(each.processor for each in samples) / shape.rows * 1e6
    return Rate(shape, columns, way, median(rates), min(rates), max(rates), cost, None, None)
