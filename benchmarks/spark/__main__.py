"""``make bench-spark`` measures reads, writes and audits, beside Spark's own Kafka source and sink, and beside
Parquet.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console

from benchmarks.peers.kafka import KafkaServer
from benchmarks.spark.audits import Audited, Ledger, audit_all
from benchmarks.spark.reads import Reads, read_all
from benchmarks.spark.rows import Shape
from benchmarks.spark.session import session
from benchmarks.spark.tables import document, show
from benchmarks.spark.writes import Writes, write_all

PARTS: Final = ("read", "write", "audit")


class Extent(NamedTuple):
    """The extent of a run: shapes that are read, shapes that are written, ledgers that are audited."""

    reads: list[Shape]
    writes: list[Shape]
    audits: list[Ledger]


FULL: Final = Extent(
    [Shape(size, rows, count) for size, rows in ((100, 4_000_000), (1024, 500_000)) for count in (1, 16)],
    [Shape(100, 1_000_000, 4), Shape(1024, 200_000, 4)],
    [Ledger(100, True), Ledger(1000, True, repeated=True), Ledger(3000, True), Ledger(1000, False)],
)
QUICK: Final = Extent(
    [Shape(100, 200_000, 1), Shape(1024, 20_000, 16)], [Shape(100, 100_000, 4)], [Ledger(10, True)]
)


@click.command()
@click.option("--repeat", default=3, show_default=True, help="How often; all are gone through each time.")
@click.option("--quick", is_flag=True, help="Few rows, once: to see that it works.")
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Some parts. Repeatable.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option("--folder", default=Path("build/bench"), type=click.Path(path_type=Path), show_default=True)
def main(repeat: int, quick: bool, only: tuple[str, ...], file: Path | None, folder: Path) -> None:
    """Measure reads, writes and audits by Spark, in one run with Spark's own ways."""
    extent, repeat = (QUICK, 1) if quick else (FULL, repeat)
    parts = only or PARTS
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=folder)).resolve()
    began = time.monotonic()
    try:
        reads, writes = _with_spark(extent, parts, scratch, repeat)
        audits: dict[Ledger, list[Audited]] = {}
        if "audit" in parts:
            audits = audit_all(extent.audits, scratch, repeat)
    finally:
        shutil.rmtree(scratch)
    show(reads, writes, audits, Console(width=160))
    settings = {"repeat": repeat, "quick": quick, "parts": list(parts), "seconds": time.monotonic() - began}
    if file is not None:
        file.write_text(document(reads, writes, audits, settings))


def _with_spark(extent: Extent, parts: tuple[str, ...], scratch: Path, repeat: int) -> tuple[Reads, Writes]:
    reads: Reads = {}
    writes: Writes = {}
    if {"read", "write"}.isdisjoint(parts):
        return reads, writes
    with KafkaServer(scratch / "kafka") as kafka, session(scratch) as spark:
        if "write" in parts:
            writes = write_all(spark, extent.writes, scratch, kafka, repeat)
        if "read" in parts:
            reads = read_all(spark, extent.reads, scratch / "rows", kafka, repeat)
    return reads, writes


if __name__ == "__main__":
    main()
