"""``make bench-groups`` measures workers, each a process, with a handler that waits 5 ms; how soon others take over
from one; and a thousand sessions of one group. See docs/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import Progress

import txbroker
from benchmarks.figure_tables import table
from benchmarks.figures import Figure, Result, Samples, share
from benchmarks.groups.handovers import HANDOVERS, is_even, measured
from benchmarks.groups.processes import BenchmarkFailed, handled, workers
from benchmarks.groups.sessions import EVEN, IDLE, Scene, settings_of
from benchmarks.groups.sessions import measured as measured_sessions
from benchmarks.groups.worker import WAIT
from benchmarks.harness import processes
from benchmarks.harness.process_memory import allow_descriptors
from txbroker.drill.broker.broker_process import BrokerProcess

FOLDER = Path("build/bench")
WIDTH = 180
"""The width of the output where it is no terminal."""

WARM_UP = 0.5
"""Seconds of work before measuring."""


class Way(NamedTuple):
    """A number of worker processes with a partition each, and how many calls each runs at once."""

    kind: str
    workers: int = 1
    concurrency: int = 1

    @property
    def name(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.kind}, {workers}, concurrency={self.concurrency}"


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "transaction": {"transaction": "broker"},
    "1 % failing": {"failing": 100},
}
RATES = ("plain", "transaction")
WAYS = [
    *(Way(kind, *how) for kind in RATES for how in ((1, 1), (1, 8), (2, 1), (8, 1))),
    Way("1 % failing", 1, 8),
]
TARGETS: dict[Way, tuple[Way, float]] = {
    **{
        Way(kind, *how): (Way(kind), factor)
        for kind in RATES
        for how, factor in (((1, 8), 7.0), ((2, 1), 1.9), ((8, 1), 7.0))
    },
    Way("1 % failing", 1, 8): (Way("plain", 1, 8), 0.9),
}
"""How many times as fast as another way."""

SCENE = Scene()


def rate(address: str, way: Way, seconds: float) -> float:
    """Return how many messages a second all workers of a way handle together, once they share the partitions."""
    most = int((seconds + 8 * WARM_UP) / WAIT * way.workers * way.concurrency * 1.2) + 500
    topic = f"work-{time.monotonic_ns()}"
    with txbroker.connect(address) as broker:
        broker.create_topic(topic, partitions=way.workers)
        broker.create_topic("done", exist_ok=True)
        for number in range(most):
            broker.send_async(topic, b"%d" % number, partition=number % way.workers)
        broker.flush()
        with workers(address, topic, concurrency=way.concurrency, **KINDS[way.kind]) as start:
            found = [start() for _ in range(way.workers)]
            while not (all(handled(found)) and is_even(broker.describe_group(topic), way.workers)):
                time.sleep(0.01)
            time.sleep(WARM_UP)
            first, began = sum(handled(found)), time.monotonic()
            time.sleep(seconds)
            last, ends = sum(handled(found)), time.monotonic()
            if last >= most:
                raise BenchmarkFailed(f"{way.name}: all {most} messages were handled before the end")
            return (last - first) / (ends - began)


def results(samples: Samples) -> list[Result]:
    """Return each way's figures, beside those that they are measured by, and the hand-overs."""
    found = []
    for way in WAYS:
        if values := samples.get(way.name):
            beside, factor = TARGETS.get(way, (None, 0.0))
            limits = None if beside is None else samples.get(beside.name)
            target = None if beside is None else share(factor)
            figure = Figure(way.name, "/s", beside.name if beside else "", target=target)
            found.append(
                Result(figure, median(values), min(values), max(values), median(limits) if limits else None)
            )
    for figure in (*(each.figure for each in HANDOVERS), EVEN, IDLE):
        if values := samples.get(figure.name):
            found.append(Result(figure, median(values), min(values), max(values), None))
    return found


@contextmanager
def running(folder: Path, *settings: str) -> Iterator[BrokerProcess]:
    """Run a broker on new data below a folder, with default settings but for these."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="groups-") as data,
        processes.broker(Path(data) / "data", *settings) as broker,
    ):
        yield broker


def sessions(folder: Path, scene: Scene, idle: list[float]) -> float:
    """Return how soon the sessions of a scene have their shares; add what they cost then to ``idle``."""
    allow_descriptors()
    with running(folder, *settings_of(scene)) as broker:
        found = measured_sessions(scene, broker)
        idle.append(found.idle)
        return found.until_even


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="For measuring each of them once.")
@click.option("--repeat", default=5, show_default=True, help="How often; all are gone through each time.")
@click.option("--quick", is_flag=True, help="Half a second each, twice: to see that it works.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([*KINDS, "handovers", "sessions"]),
    help="Only this kind (and again for others).",
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option(
    "--folder",
    default=FOLDER,
    type=click.Path(path_type=Path),
    show_default=True,
    help="Of the broker's data.",
)
def main(
    seconds: float, repeat: int, quick: bool, only: Sequence[str], file: Path | None, folder: Path
) -> None:
    """Measure workers of a group. Exits with 0 whether targets are met or not."""
    if quick:
        seconds, repeat = 0.5, 2
    scenes = [SCENE._replace(seconds=5.0) if quick else SCENE] if not only or "sessions" in only else []
    ways = [way for way in WAYS if not only or way.kind in only]
    handovers = HANDOVERS if not only or "handovers" in only else ()
    samples: Samples = {}
    with running(folder) as broker, Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=(len(ways) + len(handovers) + len(scenes)) * repeat)

        def sampled(name: str, value: Callable[[], float]) -> None:
            bar.update(task, description=name)
            samples.setdefault(name, []).append(value())
            bar.advance(task)

        for _ in range(repeat):
            for way in ways:
                sampled(way.name, partial(rate, broker.address, way, seconds))
            with txbroker.connect(broker.address) as connection:
                for each in handovers:
                    measure = partial(measured, each, connection, broker.address, folder)
                    sampled(each.figure.name, measure)
            for scene in scenes:
                sampled(EVEN.name, partial(sessions, folder, scene, samples.setdefault(IDLE.name, [])))
    console = Console() if Console().is_terminal else Console(width=WIDTH)
    console.print(table(results(samples)))
    if file is not None:
        machine = {
            "processors": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
        }  # fmt: skip
        file.write_text(
            json.dumps({"machine": machine, "seconds": seconds, "samples": samples}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
