"""``make bench-groups`` measures workers, each a process, with a handler that waits 5 ms. See docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import IO, NamedTuple

import click
from rich.console import Console
from rich.progress import Progress

import txbroker
from benchmarks.figure_tables import table
from benchmarks.figures import Figure, Result, Samples, share
from benchmarks.groups.worker import WAIT
from benchmarks.harness import processes
from txbroker.drill.broker.broker_process import BrokerProcess

FOLDER = Path("build/bench")
WIDTH = 150
"""The width of the output where it is no terminal."""

WARM_UP = 0.5
"""Seconds of work before measuring."""


class Way(NamedTuple):
    """A number of worker processes with a partition each, how many calls each runs at once, and its transaction."""

    kind: str
    workers: int = 1
    concurrency: int = 1

    @property
    def name(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.kind}, {workers}, concurrency={self.concurrency}"


KINDS = {"plain": None, "transaction": "broker"}
WAYS = [
    Way(kind, workers, concurrency)
    for kind in KINDS
    for workers, concurrency in ((1, 1), (1, 8), (2, 1), (8, 1))
]
TARGETS = {(1, 8): 7.0, (2, 1): 1.9, (8, 1): 7.0}
"""How many times as fast as one worker with one call at a time."""


class BenchmarkFailed(Exception):
    """A worker failed, or has handled all there was; the message says which."""


@contextmanager
def working(address: str, way: Way, messages: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start workers on a topic of their own that holds ``messages``; end them in order at the end."""
    with txbroker.connect(address) as broker:
        topic = f"work-{time.monotonic_ns()}"
        broker.create_topic(topic, partitions=way.workers)
        broker.create_topic("done", exist_ok=True)
        for number in range(messages):
            broker.send_async(topic, b"%d" % number, partition=number % way.workers)
        broker.flush()
    with ExitStack() as stack:
        found = []
        for number in range(way.workers):
            choices = {"concurrency": way.concurrency, "transaction": KINDS[way.kind], "partitions": [number]}
            command = [
                sys.executable,
                "-m",
                "benchmarks.groups.worker",
                address,
                topic,
                topic,
                json.dumps(choices),
            ]
            worker = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.callback(ended, worker)
            found.append(worker)
        yield found


def ended(worker: subprocess.Popen[str]) -> None:
    """End a worker."""
    pipe(worker.stdin).close()
    code = worker.wait()
    pipe(worker.stdout).close()
    if code and sys.exception() is None:
        raise BenchmarkFailed(f"a worker ended with {code}")


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def handled(workers: Sequence[subprocess.Popen[str]]) -> list[int]:
    """Ask how many messages each has handled."""
    for worker in workers:
        pipe(worker.stdin).write("\n")
        pipe(worker.stdin).flush()
    answers = [pipe(worker.stdout).readline() for worker in workers]
    if not all(answers):
        raise BenchmarkFailed("a worker has ended by itself")
    return [int(answer) for answer in answers]


def rate(address: str, way: Way, seconds: float) -> float:
    """Return how many messages a second all workers of a way handle together."""
    most = int((seconds + 4 * WARM_UP) / WAIT * way.workers * way.concurrency * 1.2) + 100
    with working(address, way, most) as workers:
        while not all(handled(workers)):
            time.sleep(0.01)
        time.sleep(WARM_UP)
        first, began = sum(handled(workers)), time.monotonic()
        time.sleep(seconds)
        last, ends = sum(handled(workers)), time.monotonic()
        if last >= most:
            raise BenchmarkFailed(f"{way.name}: all {most} messages were handled before the end")
        return (last - first) / (ends - began)


def results(samples: Samples) -> list[Result]:
    """Return each way's figures, beside those of one worker with one call at a time."""
    found = []
    for way in WAYS:
        values = samples.get(way.name)
        if not values:
            continue
        one = Way(way.kind).name
        factor = TARGETS.get((way.workers, way.concurrency))
        figure = Figure(way.name, "/s", one, target=share(factor)) if factor else Figure(way.name, "/s")
        limit = median(samples[one]) if factor and samples.get(one) else None
        found.append(Result(figure, median(values), min(values), max(values), limit))
    return found


@contextmanager
def running(folder: Path) -> Iterator[BrokerProcess]:
    """Run a broker on new data below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="groups-") as data,
        processes.broker(Path(data) / "data") as broker,
    ):
        yield broker


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="For measuring each of them once.")
@click.option("--repeat", default=5, show_default=True, help="How often; all are gone through each time.")
@click.option("--quick", is_flag=True, help="Half a second each, twice: to see that it works.")
@click.option(
    "--only", multiple=True, type=click.Choice(list(KINDS)), help="Only this kind (and again for others)."
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
    ways = [way for way in WAYS if not only or way.kind in only]
    samples: Samples = {}
    with running(folder) as broker, Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(ways) * repeat)
        for _ in range(repeat):
            for way in ways:
                bar.update(task, description=way.name)
                samples.setdefault(way.name, []).append(rate(broker.address, way, seconds))
                bar.advance(task)
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
