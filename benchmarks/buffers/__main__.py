"""``make bench-buffers`` compares the pooled allocator with plain memory: time, memory left after an hour, and possible
uses.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.buffers.churn import KINDS, Residue, churn
from benchmarks.buffers.uses import Way, uses
from benchmarks.figure_tables import machine
from journal.buffers import PooledAllocator
from journal.constants import KIB, MIB

TARGET_NS: Final = 1500
TARGET_RESIDENT: Final = 1.3
MANY: Final = 1000
WIDTH: Final = 130


def allocations() -> list[tuple[str, tuple[Way, Way]]]:
    """Return the costs of allocating and releasing, :data:`MANY` times, with the pool and as a bytearray."""

    def both(size: int) -> tuple[Way, Way]:
        pool = PooledAllocator(256 * MIB)

        def pooled() -> None:
            allocate = pool.allocate
            for _ in range(MANY):
                allocate(size).release()

        def plain() -> None:
            for _ in range(MANY):
                bytearray(size)

        return pooled, plain

    def missed(size: int) -> tuple[Way, Way]:
        pool = PooledAllocator(256 * MIB)

        def pooled() -> None:
            for buffer in [pool.allocate(size) for _ in range(MANY)]:
                buffer.release()
            pool.available()  # this empties the cache

        def plain() -> None:
            for buffer in [bytearray(size) for _ in range(MANY)]:
                del buffer

        return pooled, plain

    return [
        ("cache hit, 512 B", both(512)),
        ("cache hit, 4 KiB", both(4 * KIB)),
        ("cache hit, 32 KiB", both(32 * KIB)),
        ("cache miss, 512 B: a part of a page", missed(512)),
        ("cache miss, 16 KiB: a run of pages", missed(16 * KIB)),
        ("arena, 64 KiB", both(64 * KIB)),
        ("arena, 1 MiB", both(MIB)),
        ("huge, 17 MiB", both(17 * MIB)),
    ]


def best(call: Way, seconds: float) -> float:
    """Return the seconds of one call: the least of as many as fit, since other programs only add time."""
    clock = time.perf_counter
    end, least = clock() + seconds, float("inf")
    while clock() < end:
        began = clock()
        call()
        least = min(least, clock() - began)
    return least


class Cost(NamedTuple):
    """Nanoseconds with the pool and without; ``plain`` says what is done without it."""

    what: str
    plain: str
    pool_ns: float
    plain_ns: float


def cost(what: str, plain: str, count: int, ways: tuple[Way, Way], seconds: float) -> Cost:
    """Return the cost of both ways, measured in turn; a call does it ``count`` times."""
    pairs = [[best(way, seconds) for way in ways] for _ in range(3)]
    pooled, other = (min(each) * 1e9 / count for each in zip(*pairs, strict=True))
    return Cost(what, plain, pooled, other)


def churned(seconds: float) -> dict[str, Residue]:
    """Return what is left after the hour, with the pool and without, each in a process of its own."""
    spawned = multiprocessing.get_context("spawn")
    found = {}
    for kind in KINDS:
        with ProcessPoolExecutor(1, spawned) as process:
            found[kind] = process.submit(churn, kind, seconds).result()
    return found


@click.command()
@click.option("--seconds", default=40.0, show_default=True, help="In which the hour passes, each way.")
@click.option(
    "--sample", default=0.3, show_default=True, help="Seconds for each way of each cost, three times."
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option("--folder", default=Path("build/bench"), type=click.Path(path_type=Path), show_default=True)
def main(seconds: float, sample: float, file: Path | None, folder: Path) -> None:
    """Measure the buffer pool beside Python's own memory. Exits with 0 whether the targets are met or not."""
    folder.mkdir(parents=True, exist_ok=True)
    times = [cost(what, "bytearray", MANY, ways, sample) for what, ways in allocations()]
    found = [
        cost(use.name, use.plain, use.times, (use.with_pool, use.without), sample) for use in uses(folder)
    ]
    hour = churned(seconds)
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    console.print(costs_table("allocate and release", times), costs_table("use", found), memory_table(hour))
    for line in verdicts(times, hour["pool"]):
        console.print(line)
    if file is not None:
        document = {
            "machine": machine(),
            "allocate_and_release": [each._asdict() for each in times],
            "uses": [each._asdict() for each in found],
            "hour": {kind: residue._asdict() for kind, residue in hour.items()},
        }
        file.write_text(json.dumps(document, indent=2) + "\n")


def costs_table(head: str, costs: list[Cost]) -> Table:
    """Return one line for each cost: nanoseconds and their ratio."""
    table = Table(head, title="nanoseconds, the least of many", title_justify="left")
    for column in ("pool", "plain", "ratio", "plain is"):
        table.add_column(column, justify="left" if column == "plain is" else "right")
    for one in costs:
        ratio = f"{one.pool_ns / one.plain_ns:.2f}"
        table.add_row(one.what, f"{one.pool_ns:,.0f}", f"{one.plain_ns:,.0f}", ratio, one.plain)
    return table


def memory_table(hour: dict[str, Residue]) -> Table:
    """Return MiB, resident beside live."""
    title = "an hour of waves, MiB: at a crest, in the last trough, and half a minute later"
    table = Table("memory", title=title, title_justify="left")
    for column in (
        "buffers/s",
        "live",
        "resident",
        "ratio",
        "live",
        "resident",
        "ratio",
        "resident",
        "ratio",
    ):
        table.add_column(column, justify="right")
    for kind, one in hour.items():
        cells = [f"{one.steps / one.seconds:,.0f}"]
        for live, resident in ((one.live_high, one.resident_high), (one.live_low, one.resident_low)):
            cells += [f"{live:.1f}", f"{resident:.1f}", f"{resident / live:.2f}"]
        table.add_row(kind, *cells, f"{one.resident_quiet:.1f}", f"{one.resident_quiet / one.live_low:.2f}")
    return table


def verdicts(times: list[Cost], pool: Residue) -> list[str]:
    """Return the targets, and whether they are met."""
    worst = max(one.pool_ns for one in times if one.what.startswith("cache hit"))
    ratio = pool.resident_quiet / pool.live_low
    return [
        f"from the thread's cache at most {worst:,.0f} ns; target ≤ {TARGET_NS:,}: {_met(worst <= TARGET_NS)}",
        f"resident after an hour {ratio:.2f} × live; target ≤ {TARGET_RESIDENT}: {_met(ratio <= TARGET_RESIDENT)}",
    ]


def _met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


if __name__ == "__main__":
    main()
