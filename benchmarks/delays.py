"""``python -m benchmarks.delays`` measures messages for later: the memory of a million, and how late they are placed.

Lateness is from the due time until the append time that the broker stamps, both by the same clock.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

import txbroker
from benchmarks.harness import processes
from benchmarks.harness.process_memory import memory_of

FOLDER: Final = Path("build/bench/delays")
WIDTH: Final = 110
TOPIC: Final = "delays"
MESSAGE: Final = bytes(100)
MIB: Final = 1 << 20
SPREAD: Final = 0.004
"""Seconds between the due times of single messages."""


class Sizes(NamedTuple):
    """How much is measured: ``waiting`` messages for their memory, each time after ``settle`` seconds, ``single`` ones
    for their lateness, alone and beside ``rate`` sends a second, and a ``burst`` that is due in one second.
    """

    waiting: int = 1_000_000
    single: int = 2_000
    burst: int = 20_000
    rate: int = 50_000
    settle: float = 25.0


class Row(NamedTuple):
    """A figure, what it may be at most, and its unit."""

    what: str
    found: float
    target: float
    unit: str

    @property
    def shown(self) -> str:
        """The figure, and whether it is over."""
        return f"{self.found:,.1f} {self.unit}{'' if self.found <= self.target else '  missed'}"


def memory(client: txbroker.Connection, pid: int, sizes: Sizes) -> list[Row]:
    """Schedule messages for in an hour, and for in a year; return what memory all of them take."""
    rows, count = [], sizes.waiting
    for what, first, span, target in (
        ("due within the hour", 1800.0, 1700.0, 120.0),
        ("due within a year", 86400.0, 300 * 86400.0, 10.0),
    ):
        before = settled(pid, sizes.settle)
        for number in range(count):
            client.send_async(TOPIC, MESSAGE, after=first + span * number / count)
        client.flush()
        rows.append(
            Row(
                f"{count:,} x {len(MESSAGE)} B {what}: resident",
                settled(pid, sizes.settle) - before,
                target * count / 1e6,
                "MiB",
            )
        )
    return rows


def settled(pid: int, seconds: float) -> float:
    """Return the resident MiB of a broker once its logs are flushed, for which it has so many seconds."""
    time.sleep(seconds)
    return memory_of(pid).resident / MIB


def burst(client: txbroker.Connection, count: int) -> Row:
    """Have so many messages due in the same second; return after how long the last was placed."""
    due = time.time() + 5 + count / 10_000
    first = end_of(client)
    for number in range(count):
        client.send_async(TOPIC, MESSAGE, at=datetime.fromtimestamp(due + number / count, UTC))
    client.flush()
    last = max(placed(client, first, count))
    return Row(f"{count:,} due in one second: all out after", last - due, 1.5, "s")


def lateness(client: txbroker.Connection, count: int, what: str, target: float) -> list[Row]:
    """Have messages due one after the other; return how late they were placed."""
    due = time.time() + 2
    first = end_of(client)
    moments = [due + number * SPREAD for number in range(count)]
    for moment in moments:
        client.send_async(TOPIC, MESSAGE, at=datetime.fromtimestamp(moment, UTC))
    client.flush()
    late = [(at - moment) * 1e3 for at, moment in zip(placed(client, first, count), moments, strict=True)]
    cuts = statistics.quantiles(late, n=100, method="inclusive")
    assert min(late) >= 0, "one came early"
    return [
        Row(f"lateness {what}: p50", statistics.median(late), target, "ms"),
        Row(f"lateness {what}: p99", cuts[98], target, "ms"),
    ]


def end_of(client: txbroker.Connection) -> int:
    """Return where the topic's only partition ends."""
    [topic] = client.topics([TOPIC])
    return topic.partitions[0].high_watermark


def placed(client: txbroker.Connection, first: int, count: int) -> list[float]:
    """Wait for so many messages; return the seconds at which they were appended, in their order."""
    found: list[float] = []
    with client.consume(TOPIC, start=first) as consumer:
        while len(found) < count:
            found += [message.appended / 1e6 for message in consumer.poll(timeout=60.0)]
    return found


@contextmanager
def load(address: str, rate: int) -> Iterator[None]:
    """Have other clients send so many messages a second meanwhile."""
    words = ["bench", "produce", "--broker", address, "--rate", str(rate), "--duration", "60s", "--no-verify"]
    with subprocess.Popen(
        [sys.executable, "-m", "txbroker", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(3)
        yield
        process.terminate()


def run(folder: Path, sizes: Sizes) -> list[Row]:
    """Measure everything: memory on a broker of its own."""
    rows: list[Row] = []
    for part in ("lateness", "memory"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with (
            processes.broker(folder / "data", f"max_scheduled={3 * sizes.waiting}") as broker,
            txbroker.connect(broker.address) as client,
        ):
            client.create_topic(TOPIC)
            if part == "memory":
                rows += memory(client, broker.pid, sizes)
                continue
            rows += lateness(client, sizes.single, "alone", 25)
            rows.append(burst(client, sizes.burst))
            with load(broker.address, sizes.rate):
                rows += lateness(client, sizes.single, f"beside {sizes.rate:,} sends/s", 250)
    shutil.rmtree(folder)
    return rows


def table(rows: list[Row]) -> Table:
    """Return the figures, beside what was wanted."""
    shown = Table(title="Messages for later")
    for title, justify in (("what", "left"), ("found", "right"), ("wanted", "right")):
        shown.add_column(title, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        shown.add_row(row.what, row.shown, f"{row.target:,.1f} {row.unit}")
    return shown


@click.command()
@click.option(
    "--waiting", default=Sizes().waiting, show_default=True, help="Messages whose memory is measured."
)
@click.option(
    "--single", default=Sizes().single, show_default=True, help="Messages whose lateness is measured."
)
@click.option(
    "--burst", default=Sizes().burst, show_default=True, help="Messages that are due in one second."
)
@click.option("--rate", default=Sizes().rate, show_default=True, help="Other sends a second.")
@click.option("--settle", default=Sizes().settle, show_default=True, help="Seconds until memory is read.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(folder: Path, **sizes: float) -> None:
    """Measure messages for later. Exits with 0 whether the targets are met or not."""
    console = Console()
    rows = run(folder, Sizes(**sizes))  # type: ignore[arg-type]
    (console if console.is_terminal else Console(width=WIDTH)).print(table(rows))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.delays")
