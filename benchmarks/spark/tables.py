"""The figures as tables, and everything as JSON for comparing runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyspark
from rich.console import Console
from rich.table import Table

from benchmarks.figure_tables import machine, verdict
from benchmarks.spark.audits import Audited, Ledger
from benchmarks.spark.figures import Duration, Rate, of_audits, of_reads, of_writes
from benchmarks.spark.reads import Reads
from benchmarks.spark.writes import Writes


def show(reads: Reads, writes: Writes, audits: dict[Ledger, list[Audited]], console: Console) -> None:
    """Print what was measured."""
    if reads:
        console.print(rates("read, medians", of_reads(reads)))
    if writes:
        console.print(rates("written, medians", of_writes(writes)))
    if audits:
        console.print(durations(of_audits(audits)))


def rates(title: str, lines: Sequence[Rate]) -> Table:
    found = Table("rows", "columns", "way", title=title, title_justify="left")
    for column in ("rows/s", "min – max", "MB/s", "processor µs/row", "× Kafka", "× Parquet"):
        found.add_column(column, justify="right")
    for column in ("target", "met"):
        found.add_column(column)
    before: Any = None
    for line in lines:
        group = line.shape, line.columns
        found.add_row(
            *((line.shape.title, line.columns) if group != before else ("", "")), line.way, f"{line.value:,.0f}",
            f"{line.least:,.0f} – {line.most:,.0f}", f"{line.megabytes:,.0f}", f"{line.cost:.2f}", _times(line.kafka),
            _times(line.parquet), line.target, verdict(line.is_met), style="bold red" if line.is_met is False else "",
        )  # fmt: skip
        before = group
    return found


def durations(lines: Sequence[Duration]) -> Table:
    found = Table("audit of", title="audits, medians", title_justify="left")
    for column in (
        "s since Spark's start",
        "min – max",
        "s in all",
        "processor s",
        "most memory, MB",
        "logs, MB",
    ):
        found.add_column(column, justify="right")
    for column in ("target", "met"):
        found.add_column(column)
    for line in lines:
        found.add_row(
            line.ledger.title, f"{line.value:.1f}", f"{line.least:.1f} – {line.most:.1f}", f"{line.whole:.1f}",
            f"{line.processor:.1f}", f"{line.memory / 1e6:,.0f}", f"{line.log / 1e6:,.0f}", line.target,
            verdict(line.is_met), style="bold red" if line.is_met is False else "",
        )  # fmt: skip
    return found


def document(
    reads: Reads, writes: Writes, audits: dict[Ledger, list[Audited]], settings: dict[str, Any]
) -> str:
    """Return figures and every sample."""
    read = {(rate.shape, rate.columns, rate.way): rate for rate in of_reads(reads)} if reads else {}
    written = {(rate.shape, rate.way): rate for rate in of_writes(writes)} if writes else {}
    whole = {
        "machine": machine() | {"spark": pyspark.__version__},
        "settings": settings,
        "reads": [_entry(rate, reads[key]) for key, rate in read.items()],
        "writes": [_entry(rate, writes[key]) for key, rate in written.items()],
        "audits": [_audit(line, audits[line.ledger]) for line in of_audits(audits)],
    }
    return json.dumps(whole, indent=2) + "\n"


def _entry(rate: Rate, samples: Sequence[Any]) -> dict[str, Any]:
    return rate._asdict() | {
        "shape": rate.shape._asdict(),
        "megabytes": rate.megabytes,
        "samples": [each._asdict() for each in samples],
    }


def _audit(line: Duration, samples: Sequence[Audited]) -> dict[str, Any]:
    return line._asdict() | {
        "ledger": line.ledger._asdict(),
        "samples": [each._asdict() for each in samples],
    }


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
