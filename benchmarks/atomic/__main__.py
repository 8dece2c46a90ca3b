"""``make bench-atomic`` measures a row and a message in one block, beside the alternatives. See docs/benchmarks.md."""

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
import msgspec
import psycopg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import txbroker
from benchmarks.atomic.loads import IN_BROKER, IN_DATABASE, LOADS, POLLED, TABLES, TOPIC, Load, Process
from benchmarks.atomic.worker import Done
from benchmarks.figure_tables import number, table
from benchmarks.figures import Figure, Result, Samples, Target, share
from benchmarks.harness import processes
from benchmarks.harness.process_memory import processor_seconds
from demo.database_process import children
from demo.postgresql import PostgresqlServer
from txbroker.drill.broker.broker_process import BrokerProcess

MANY = 16
WARM_UP = 0.5
"""Seconds of work before measuring."""

FOLDER = Path("build/bench")
WIDTH = 150
"""The width of the output where it is no terminal."""

PARTITIONS = 4
SETTLE_WITHIN = 30.0
"""Seconds within which the broker must show decided messages."""


class Way(NamedTuple):
    """A way to run a load: a number of connections, in processes or in threads of one process."""

    load: str
    connections: int = 1
    threads: bool = False

    @property
    def name(self) -> str:
        if self.connections == 1:
            return f"{self.load}, 1 connection"
        return f"{self.load}, {self.connections} {'threads' if self.threads else 'processes'}"


SIMPLE = ("row", "outbox", "outbox-pipelined", "two-phase", "messages")


def end_to_end(way: Way) -> str:
    """Return the name of a way's rate of messages that can be read."""
    return f"{way.name}, end to end"


class Usage(NamedTuple):
    """The processor time while measuring, in µs for each piece of work; PostgreSQL's includes all its processes."""

    client: float
    database: float
    broker: float


EACH = (
    *SIMPLE, "outbox-polled", "atomic-outbox", "atomic-outbox-shown", "atomic", "atomic-shown",
)  # fmt: skip
IN_THREADS = ("outbox-pipelined", "outbox-polled", "atomic-outbox", "two-phase", "atomic")
WAYS = (
    *(Way(load) for load in EACH),
    *(Way(load, MANY) for load in EACH),
    *(Way(load, MANY, True) for load in IN_THREADS),
)
PAUSES = {"one after the other": 0.0, "one every 20 ms": 0.02}
"""Seconds between blocks whose way to a consumer is timed."""
PIECES = 200
"""Blocks that are timed for each."""

ONE, ALL = Way("two-phase").name, Way("two-phase", MANY).name


def beside(way: Way, least: float) -> tuple[Figure, ...]:
    """Return the figures of a way beside an outbox whose row goes with COMMIT, and beside one with its poller."""
    own = Figure(way.name, "/s", way._replace(load="outbox-pipelined").name, target=share(least))
    polled = Figure(
        f"{way.name}, end to end", "/s", end_to_end(way._replace(load="outbox-polled")), target=share(1.3)
    )
    return own, polled


TARGETS = {
    Way("atomic-outbox"): beside(Way("atomic-outbox"), 0.95),
    Way("atomic-outbox", MANY): beside(Way("atomic-outbox", MANY), 0.8),
    Way("atomic-outbox", MANY, True): beside(Way("atomic-outbox", MANY, True), 0.8),
    Way("atomic"): (
        Figure(Way("atomic").name, "/s", ONE, target=share(1.0)),
        Figure("the same, beside the outbox", "/s", Way("outbox-pipelined").name, target=share(0.6)),
    ),
    Way("atomic", MANY): (
        Figure(Way("atomic", MANY).name, "/s", ALL, target=share(1.5)),
        Figure("the same, beside the outbox", "/s", Way("outbox-pipelined", MANY).name, target=share(0.55)),
    ),
    Way("atomic-shown"): (Figure(Way("atomic-shown").name, "/s", ONE),),
    Way("atomic-shown", MANY): (Figure(Way("atomic-shown", MANY).name, "/s", ALL),),
    Way("atomic", MANY, True): (
        Figure(Way("atomic", MANY, True).name, "/s", Way("two-phase", MANY, True).name),
    ),
}


def until_read(pause: str) -> Figure:
    """Return the figure for the time from the end of a block until a consumer has its message."""
    return Figure(
        f"atomic-outbox, {pause}, COMMIT until read, p50",
        "ms",
        target=Target("≤ 5 ms", plus=5.0, at_most=True),
    )


class BenchmarkFailed(Exception):
    """A worker failed, or counted work is not there; the message says which."""


@contextmanager
def servers(folder: Path) -> Iterator[tuple[PostgresqlServer, BrokerProcess]]:
    """Start PostgreSQL and the broker, both new and forcing to the same disk."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"max_prepared_transactions": 2 * MANY, "shared_buffers": "128MB"}
    postgresql = PostgresqlServer(Path(tempfile.mkdtemp(prefix="txbroker-bench-", dir="/tmp")), settings)
    with ExitStack() as stack:
        stack.callback(postgresql.remove)
        postgresql.start()
        data = stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix="atomic-"))
        broker = stack.enter_context(processes.broker(Path(data)))
        with psycopg.connect(postgresql.url("postgres")) as database:
            database.execute(TABLES)
            database.commit()
            txbroker.create_decision_table(database)
        yield postgresql, broker


def url_of(broker: BrokerProcess) -> str:
    return f"tcp:127.0.0.1:{broker.port}"


class Bench:
    """The bench runs ways again and again, on the same servers."""

    def __init__(self, postgresql: PostgresqlServer, broker: BrokerProcess) -> None:
        self.empties = True
        """Whether each run begins with a new outbox table, without what the runs before have left of dead rows."""
        self._postgresql = postgresql
        self._broker = broker
        self._runs = 0
        self._database_url = postgresql.url("postgres")

    def run(self, way: Way, seconds: float) -> tuple[list[float], float, Usage, float]:
        """Run a way; return the latencies, and of a second: the work done, the processor time of each, and how many
        messages became visible.
        """
        self._runs += 1
        topic = self._prepare()
        count = 1 if way.threads else way.connections
        with ExitStack() as stack:
            workers = [self._worker(stack, way, number) for number in range(count)]
            servers = (self._database_url, url_of(self._broker))
            pollers = [self._program(stack, "poller", *servers)] if way.load in POLLED else []
            for worker in (*workers, *pollers):
                self._expect(worker, "ready")
            broker = stack.enter_context(txbroker.connect(url_of(self._broker)))
            begin = time.monotonic() + WARM_UP
            for worker in workers:
                print(begin, begin + seconds, file=stdin(worker), flush=True)
            time.sleep(WARM_UP)
            before, shown = self._used(), self._messages(broker)
            time.sleep(seconds)
            shown = self._messages(broker) - shown
            done = [msgspec.json.decode(self._line(worker), type=Done) for worker in workers]
            after = self._used()
            for worker in (*workers, *pollers):
                stdin(worker).close()
                self._expect(worker, "closed")
        self._verify(way, topic, sum(one.total for one in done))
        counted = max(1, sum(one.counted for one in done))
        usage = Usage(
            sum(one.processor for one in done) * 1e6 / counted,
            (after[0] - before[0]) * 1e6 / counted,
            (after[1] - before[1]) * 1e6 / counted,
        )
        latencies = [latency for one in done for latency in one.latencies]
        return latencies, counted / seconds, usage, shown / seconds

    def until_read(self, pause: float) -> float:
        """Return the median of the milliseconds from the end of a block until another process has read its message."""
        self._prepare()
        self._runs += 1
        with ExitStack() as stack:
            reader = self._program(stack, "reader", url_of(self._broker), str(PIECES))
            self._expect(reader, "ready")
            process = Process(url_of(self._broker))
            load = Load(self._database_url, process)
            stack.callback(load.close)
            stack.callback(process.close)
            once, ended = LOADS["atomic-outbox"](load), dict[str, float]()
            for number in range(PIECES):
                name = f"{self._runs}-{number}"
                once(name)
                ended[name] = time.monotonic()
                time.sleep(pause)
            seen = msgspec.json.decode(self._line(reader), type=dict[str, float])
        times = sorted(seen[name] - ended[name] for name in seen)
        if len(times) < PIECES:
            raise BenchmarkFailed(f"a consumer has read {len(times)} of {PIECES} messages")
        return times[len(times) // 2] * 1e3

    def _prepare(self) -> int:
        """Make empty tables; return how many messages there are already."""
        with psycopg.connect(self._database_url, autocommit=True) as database:
            database.execute("TRUNCATE orders, outbox" if self.empties else "TRUNCATE orders")
            database.execute("CHECKPOINT")
        with txbroker.connect(url_of(self._broker)) as broker:
            if not broker.topics([TOPIC]):
                broker.create_topic(TOPIC, partitions=PARTITIONS)
            return self._messages(broker)

    @staticmethod
    def _messages(broker: txbroker.Connection) -> int:
        return sum(part.high_watermark for part in broker.topics([TOPIC])[0].partitions)

    def _worker(self, stack: ExitStack, way: Way, number: int) -> subprocess.Popen[str]:
        place = [self._database_url, url_of(self._broker), f"{self._runs}-{number}"]
        threads = str(way.connections if way.threads else 1)
        return self._program(stack, "worker", way.load, *place, threads)

    def _program(self, stack: ExitStack, name: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"benchmarks.atomic.{name}", *arguments]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.enter_context(program)
        stack.callback(program.kill)
        return program

    def _line(self, worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise BenchmarkFailed(f"a worker ended with {worker.wait()}: {worker.args!r}")
        return line

    def _expect(self, worker: subprocess.Popen[str], word: str) -> None:
        if (line := self._line(worker).strip()) != word:
            raise BenchmarkFailed(f"a worker said {line!r} and not {word!r}")

    def _used(self) -> tuple[float, float]:
        """Return the processor seconds of PostgreSQL, with its connections' processes, and of the broker."""
        assert self._postgresql.pid is not None
        backends = [self._postgresql.pid, *children(self._postgresql.pid)]
        return sum(map(processor_seconds, backends)), processor_seconds(self._broker.pid)

    def _verify(self, way: Way, messages: int, total: int) -> None:
        """Check that everything that was counted is there."""
        with psycopg.connect(self._database_url) as database:
            rows = database.execute("SELECT count(*) FROM orders").fetchone()
        if rows != (total if way.load in IN_DATABASE else 0,):
            raise BenchmarkFailed(f"{way.name}: {total} pieces of work, {rows} rows")
        expected = messages + (total if way.load in IN_BROKER else 0)
        deadline = time.monotonic() + SETTLE_WITHIN
        with txbroker.connect(url_of(self._broker)) as broker:
            while (found := self._messages(broker)) != expected:
                if time.monotonic() > deadline:
                    raise BenchmarkFailed(
                        f"{way.name}: {found - messages} messages, {expected - messages} expected"
                    )
                time.sleep(0.01)


def stdin(worker: subprocess.Popen[str]) -> IO[str]:
    assert worker.stdin is not None
    return worker.stdin


def results(samples: Samples) -> list[Result]:
    """Return each way's figures, those with a target beside what they are compared with."""
    found = []
    for way in WAYS:
        values = samples.get(way.name)
        if not values:
            continue
        for figure in TARGETS.get(way, (Figure(way.name, "/s"),)):
            limit = median(samples[figure.limit]) if samples.get(figure.limit) else None
            own = samples.get(figure.name, values)
            found.append(Result(figure, median(own), min(own), max(own), limit))
    for figure in map(until_read, PAUSES):
        if figure.name in samples:
            times = samples[figure.name]
            found.append(Result(figure, median(times), min(times), max(times), None))
    return found


def details(usages: dict[str, list[Usage]], latencies: dict[str, list[float]]) -> Table:
    """Return where the time goes."""
    shown = Table("way", title="processor time for each, and how long each takes", title_justify="left")
    for column in ("client µs", "PostgreSQL µs", "broker µs", "p50 µs", "p99 µs"):
        shown.add_column(column, justify="right")
    for name, used in usages.items():
        ordered = sorted(latencies[name]) or [0.0]
        shown.add_row(
            name,
            number(median(one.client for one in used)),
            number(median(one.database for one in used)),
            number(median(one.broker for one in used)),
            number(ordered[len(ordered) // 2] * 1e6),
            number(ordered[len(ordered) * 99 // 100] * 1e6),
        )
    return shown


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="For measuring each of them once.")
@click.option("--repeat", default=5, show_default=True, help="How often; all are gone through each time.")
@click.option("--quick", is_flag=True, help="Half a second each, twice: to see that it works.")
@click.option("--only", multiple=True, metavar="LOAD", help="Only this load (and again for others).")
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
    """Measure blocks of `txbroker.atomic` beside PostgreSQL's own ways. Exits with 0 whether targets are met or not."""
    if quick:
        seconds, repeat = 0.5, 2
    ways = [way for way in WAYS if not only or way.load in only]
    pauses = {} if only and "atomic-outbox" not in only else PAUSES
    samples: Samples = {}
    usages: dict[str, list[Usage]] = {}
    latencies: dict[str, list[float]] = {}
    with (
        servers(folder) as (postgresql, broker),
        Progress(console=Console(stderr=True), transient=True) as bar,
    ):
        bench, task = Bench(postgresql, broker), bar.add_task("", total=(len(ways) + len(pauses)) * repeat)
        for _ in range(repeat):
            for way in ways:
                bar.update(task, description=way.name)
                found, rate, usage, shown = bench.run(way, seconds)
                if way.load in IN_BROKER:
                    samples.setdefault(end_to_end(way), []).append(shown)
                samples.setdefault(way.name, []).append(rate)
                usages.setdefault(way.name, []).append(usage)
                latencies.setdefault(way.name, []).extend(found)
                bar.advance(task)
            for name, pause in pauses.items():
                figure = until_read(name)
                bar.update(task, description=figure.name)
                samples.setdefault(figure.name, []).append(bench.until_read(pause))
                bar.advance(task)
    console = Console() if Console().is_terminal else Console(width=WIDTH)
    console.print(table(results(samples)))
    console.print(details(usages, latencies))
    if file is not None:
        file.write_text(document(samples, usages, {"seconds": seconds, "repeat": repeat}) + "\n")


def document(samples: Samples, usages: dict[str, list[Usage]], settings: dict[str, float]) -> str:
    """Return everything as JSON, with every sample."""
    machine = {
        "processors": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip
    figures = [
        {
            "name": one.figure.name, "unit": one.figure.unit, "median": one.value, "min": one.least, "max": one.most,
            "beside": one.figure.limit, "limit": one.limit, "ratio": one.ratio,
            "target": one.figure.target.text if one.figure.target else None, "met": one.is_met,
        }
        for one in results(samples)
    ]  # fmt: skip
    used = {name: [usage._asdict() for usage in each] for name, each in usages.items()}
    return json.dumps(
        {"machine": machine, "settings": settings, "figures": figures, "samples": samples, "processor": used},
        indent=2,
    )


if __name__ == "__main__":
    main()
