"""``make bench-peers`` does the same work with the broker and with its peers. See docs/benchmarks.md."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import click
import pika.exceptions
import psycopg
import redis.exceptions
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.peer import UnexpectedAnswer
from benchmarks.harness.process_memory import processor_seconds
from benchmarks.peers import charts, forces, markdown
from benchmarks.peers.artemis import Artemis
from benchmarks.peers.contender import Contender
from benchmarks.peers.contender import Run as RunLoad
from benchmarks.peers.jars import JarsMissing
from benchmarks.peers.kafka_loads import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.own import Txbroker
from benchmarks.peers.postgresql import Postgresql
from benchmarks.peers.rabbitmq import Rabbitmq
from benchmarks.peers.redis import Redis
from benchmarks.peers.server import PeerFailed, PeerMissing
from demo.database_process import DatabaseFailed
from txbroker.drill.broker.broker_process import BrokerFailed

CONTENDERS: Mapping[str, Callable[[], Contender]] = {
    "txbroker": Txbroker, "kafka": lambda: Kafka(True), "kafka-default": lambda: Kafka(False), "redis": Redis,
    "nats": Nats, "rabbitmq": Rabbitmq, "artemis": Artemis, "postgresql": Postgresql,
}  # fmt: skip
KEYS = ("batches", "large-batches", "singles", "depth-1", "one-phase", "one-phase-10", "two-phase", "python")
"""The loads, which run one after the other; "python" measures sending and reading."""

TROUBLE = (
    PeerFailed, PeerMissing, JarsMissing, DatabaseFailed, BrokerFailed, UnexpectedAnswer, OSError, KafkaException,
    pika.exceptions.AMQPError, psycopg.Error, redis.exceptions.RedisError,
)  # fmt: skip
"""The errors of one system: they are reported, and the others go on."""

IDLE = 2.0
"""Seconds of idling, to see how busy the servers are then."""

PATH = click.Path(path_type=Path)


class Bench:
    """The bench starts all servers once, and runs every load with each of them in turn, again and again."""

    def __init__(
        self, contenders: Sequence[Contender], loads: Sequence[str], warm_up: float, seconds: float
    ) -> None:
        self._contenders = contenders
        self._loads = loads
        self._warm_up, self._seconds = warm_up, seconds
        self._running: list[Contender] = []
        self.run = markdown.Run(
            {one.name: markdown.System(one.name, one.durability, one.forced) for one in contenders}
        )

    @contextmanager
    def servers(self, folder: Path) -> Iterator[None]:
        """Start the servers that can be started; the folders are removed with the context."""
        with ExitStack() as stack:
            for number, one in enumerate(self._contenders):
                with self._reported(one, "did not start"):
                    self.run.systems[one.name].version = one.version()
                    stack.enter_context(one.open(folder / f"{number}"))
                    self.run.systems[one.name].settings = one.settings()
                    self.run.systems[one.name].clients = one.clients()
                    self._running.append(one)
            yield

    @contextmanager
    def _reported(self, one: Contender, what: str) -> Iterator[None]:
        try:
            yield
        except TROUBLE as error:
            missing = isinstance(error, PeerMissing | JarsMissing)
            trouble = f"{'missing' if missing else what}: {error}"
            self.run.systems[one.name].trouble.append(trouble)
            print(f"{one.name}: {trouble}", file=sys.stderr)

    def steps(self, turn: int) -> list[tuple[Contender, str, RunLoad]]:
        """Return all steps of one turn: load by load, each time with another system first."""
        first = turn % max(1, len(self._running))
        order = self._running[first:] + self._running[:first]
        return [
            (one, key, run_load)
            for load in self._loads
            for one in order
            for key, run_load in one.runs().items()
            if key.partition(":")[0] == load
        ]

    def measure(self, one: Contender, load: str, run_load: RunLoad) -> None:
        """Run one load, after everything that others wrote is on disk."""
        os.sync()
        with self._reported(one, f"{load} failed"):
            warm_up = self._warm_up * (1.0 if load == "python" else one.warm_up)
            measures = run_load(warm_up, self._seconds)
            for key, measure in measures.items():
                if not measure.rate:
                    raise PeerFailed(f"{key}: nothing was acknowledged within the time that counts")
            self.run.add(one.name, measures)

    def count_forces(self, one: Contender) -> None:
        """Count forces with one request at a time."""
        system = self.run.systems[one.name]
        probe = one.runs()[one.probe]

        def acknowledged() -> int:
            return probe(forces.SECONDS / 4, forces.SECONDS)[one.probe].acknowledged

        with self._reported(one, "forces were not counted"):
            try:
                system.forces = forces.counted(one.processes(), acknowledged)
            except forces.NotCounted as error:
                system.trouble.append(f"forces were not counted: {error}")

    def idle(self) -> float:
        """Return how many processors all servers together use while they are idle."""
        processes = [pid for one in self._running for pid in one.processes()]
        before = sum(map(processor_seconds, processes))
        time.sleep(IDLE)
        return (sum(map(processor_seconds, processes)) - before) / IDLE

    def all(self, repeat: int, progress: Progress) -> None:
        """Run everything: the count of forces first, which warms the servers up as well; then turn after turn."""
        task = progress.add_task("", total=len(self._running) + repeat * len(self.steps(0)))
        for one in self._running:
            progress.update(task, description=f"forces of {one.name}")
            self.count_forces(one)
            progress.advance(task)
        self.run.idle = self.idle()
        for turn in range(repeat):
            for one, load, run_load in self.steps(turn):
                progress.update(task, description=f"{load}: {one.name}")
                self.measure(one, load, run_load)
                progress.advance(task)


def chosen(only: Sequence[str]) -> tuple[list[Contender], list[str]]:
    """Return the systems and the loads that ``--only`` names; all of a kind of which it names none."""
    systems = [name for name in CONTENDERS if name in only] or list(CONTENDERS)
    loads = [load for load in KEYS if load in only] or list(KEYS)
    if "txbroker" not in systems:
        systems.insert(0, "txbroker")
    return [CONTENDERS[name]() for name in systems], loads


def terminated(_number: int, _frame: FrameType | None) -> None:
    """End on SIGTERM as on Ctrl-C: the servers are stopped and the folders removed."""
    sys.exit(143)


@click.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([*CONTENDERS, *KEYS]),
    help="A system (beside txbroker) or a load; again for more.",
)
@click.option("--seconds", default=2.0, help="That are counted, for each figure.", show_default=True)
@click.option("--warm-up", default=1.5, help="Seconds before those; thrice for Java.", show_default=True)
@click.option("--repeat", default=5, help="Turns; a figure is their median.", show_default=True)
@click.option("--quick", is_flag=True, help="One second each, once: to see that it works.")
@click.option("--folder", default=Path("build/bench"), type=PATH, help="On the disk to measure.")
@click.option("--out", default=Path("build/bench-peers"), type=PATH, help="For report and charts.")
@click.option("--images", type=PATH, help="For the charts alone, as docs/images; else they are in OUT, too.")
@click.option("--json", "file", type=PATH, help="Every sample, to this file and not to OUT/peers.json.")
def main(
    only: tuple[str, ...], seconds: float, warm_up: float, repeat: int, quick: bool,
    folder: Path, out: Path, images: Path | None, file: Path | None,
) -> None:  # fmt: skip
    """Measure the broker beside Kafka, Redis, NATS, RabbitMQ, Artemis and PostgreSQL."""
    signal.signal(signal.SIGTERM, terminated)
    if quick:
        seconds, warm_up, repeat = 1.0, 1.0, 1
    contenders, loads = chosen(only)
    bench = Bench(contenders, loads, warm_up, seconds)
    bench.run.options = {"seconds": seconds, "warm_up": warm_up, "repeat": repeat, "only": list(only)}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="peers-", ignore_cleanup_errors=True) as scratch:
        os.chmod(scratch, 0o755)  # some servers run as a user of their own
        with bench.servers(Path(scratch)), Progress(console=Console(stderr=True), transient=True) as progress:
            bench.all(repeat, progress)
    written(bench.run, out, images or out, file)


def written(run: markdown.Run, out: Path, images: Path, file: Path | None) -> None:
    """Write report, charts and JSON."""
    out.mkdir(parents=True, exist_ok=True)
    (file or out / "peers.json").write_text(markdown.document(run) + "\n")
    text = markdown.markdown(run)
    (out / "report.md").write_text(text)
    drawn = charts.draw(run.results(), run.unforced(), images)
    print(text)
    print(
        f"written: {', '.join(map(str, [out / 'report.md', file or out / 'peers.json', *drawn]))}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
