"""``python -m benchmarks.amqp`` measures AMQP beside RabbitMQ's quorum and classic queues, by RabbitMQ's own PerfTest.

The loads take turns on servers that run side by side, so each figure is compared within one run; each is the median of
several rounds, with the least and the greatest. Confirms of this broker and of quorum queues come after a force, those
of classic queues after a write that is forced later.
"""

from __future__ import annotations

import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.harness import processes
from benchmarks.peers.jars import classpath
from benchmarks.peers.programs import HEAP, output_of
from benchmarks.peers.rabbitmq import RabbitServer
from benchmarks.peers.server import PeerFailed
from txbroker.drill.broker.broker_process import free_port

FOLDER: Final = Path("build/bench/amqp")
WIDTH: Final = 120
WARM_UP: Final = 2
"""Seconds of each load that do not count."""
OURS: Final = "txbroker"
QUEUES: Final = {OURS: "quorum", "quorum": "quorum", "classic": "classic"}
"""The contenders, with the type of queue that PerfTest declares."""

_NUMBER: Final = r"([\d,.]+)"
_SECOND: Final = re.compile(rf"time {_NUMBER} s, ")


class Load(NamedTuple):
    """A load of PerfTest: its options, the pattern of the figure in its lines, the unit, and whether less is better.

    ``wanted`` is the ratio to RabbitMQ's quorum queue that is wanted.
    """

    what: str
    options: tuple[str, ...]
    figure: re.Pattern[str]
    unit: str
    wanted: str = ""


LOADS: Final = (
    Load(
        "published with confirms, 1 KiB, 1,000 unconfirmed",
        ("-x", "1", "-y", "0", "-c", "1000"),
        re.compile(rf"confirmed: {_NUMBER} msg/s"),
        "/s",
        ">= 0.6 x",
    ),
    Load(
        "consumed from the disk's log, prefetch 500, acknowledged in hundreds",
        ("-x", "0", "-y", "1", "-q", "500", "-A", "100"),
        re.compile(rf"received: {_NUMBER} msg/s"),
        "/s",
        ">= 0.5 x",
    ),
    Load(
        "end to end at 1,000 a second, median",
        ("-x", "1", "-y", "1", "-c", "1000", "-q", "100", "-r", "1000"),
        re.compile(rf"consumer latency: [\d,]+/{_NUMBER}/"),
        "µs",
        "<= 1 x",
    ),
)


class Measured(NamedTuple):
    """What a load gave, by contender, a figure for each round."""

    load: Load
    found: dict[str, list[float]]


def figure(output: str, pattern: re.Pattern[str]) -> float:
    """Return the median of a figure in the lines of PerfTest after the warm-up; raises PeerFailed if there is none."""
    found = []
    for line in output.splitlines():
        second, told = _SECOND.search(line), pattern.search(line)
        if second and told and float(second[1]) > WARM_UP + 0.5:
            found.append(float(told[1].replace(",", "")))
    if not found:
        raise PeerFailed(f"PerfTest told nothing after the warm-up:\n{output}")
    return statistics.median(found)


def perf_test(port: int, queue: str, kind: str, load: Load, seconds: int) -> float:
    """Run a load on a queue; return its figure."""
    command = [
        "java", HEAP, "-cp", classpath("rabbitmq"), "com.rabbitmq.perf.PerfTest",
        "--uri", f"amqp://guest:guest@127.0.0.1:{port}", "-u", queue, "-qa", f"x-queue-type={kind}", "-ad", "false",
        "-s", "1024", "-f", "persistent", "-z", str(seconds), *load.options,
    ]  # fmt: skip
    return figure(output_of(command, seconds), load.figure)


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, int]]:
    """Run this broker and RabbitMQ; yield the port of each contender."""
    port = free_port()
    with ExitStack() as running:
        running.enter_context(
            processes.broker(folder / "data", f"listen_amqp=tcp:{port}:interface=127.0.0.1")
        )
        rabbit = running.enter_context(RabbitServer(folder / "rabbitmq"))
        yield {OURS: port, "quorum": rabbit.port, "classic": rabbit.port}


def run(folder: Path, rounds: int, seconds: int, told: Callable[[str], object]) -> list[Measured]:
    """Measure everything."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = [Measured(load, {name: [] for name in QUEUES}) for load in LOADS]
    with servers(folder) as ports:
        for number in range(rounds):
            for measured in found:
                for name, kind in QUEUES.items():
                    # What the first load publishes is what the second one consumes.
                    queue = f"{name}-{number}" if measured.load is not LOADS[2] else f"{name}-{number}-fresh"
                    value = perf_test(ports[name], queue, kind, measured.load, seconds)
                    measured.found[name].append(value)
                    told(
                        f"round {number + 1}: {name}, {measured.load.what}: {value:,.0f} {measured.load.unit}"
                    )
    shutil.rmtree(folder)
    return found


def ratios(measured: Measured, other: str) -> str:
    """Return the median of our figure divided by another's, round by round, with the spread."""
    each = [ours / theirs for ours, theirs in zip(measured.found[OURS], measured.found[other], strict=True)]
    return f"{statistics.median(each):.2f} x ({min(each):.2f} - {max(each):.2f})"


def table(found: list[Measured]) -> Table:
    """Return the figures, beside what was wanted."""
    shown = Table(title="AMQP beside RabbitMQ")
    for title in ("load", "txbroker", "/ quorum", "/ classic", "wanted of quorum"):
        shown.add_column(title, justify="left" if title == "load" else "right")
    for measured in found:
        ours = statistics.median(measured.found[OURS])
        shown.add_row(
            measured.load.what, f"{ours:,.0f} {measured.load.unit}", ratios(measured, "quorum"),
            ratios(measured, "classic"), measured.load.wanted,
        )  # fmt: skip
    return shown


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds.")
@click.option(
    "--seconds", default=8, show_default=True, help="Seconds of each load, the first two for warming up."
)
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(folder: Path, rounds: int, seconds: int) -> None:
    """Measure AMQP beside RabbitMQ. Exits with 0 whether the targets are met or not."""
    console = Console()
    found = run(folder, rounds, seconds, lambda line: click.echo(line, err=True))
    (console if console.is_terminal else Console(width=WIDTH)).print(table(found))


if __name__ == "__main__":
    main()
