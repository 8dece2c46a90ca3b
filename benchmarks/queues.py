"""``python -m benchmarks.queues`` measures queues: what a publish costs beside a send, a fan-out beside one delivery,
routing among many bindings, and taking and acknowledging.

Each figure is of several rounds, which take turns: the median, the least and the greatest.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

import txbroker
from benchmarks.harness import processes
from journal.folds.queues import QueuesFold
from journal.records.queue_entries import Binding, ExchangeKind, ExchangeSettings, Queue, QueueSettings
from journal.records.record import Bound, ExchangeDeclared, TopicCreated
from journal.settings import TopicSettings
from txbroker.client.producer.exchange_queue import target_of

FOLDER: Final = Path("build/bench/queues")
WIDTH: Final = 110
MESSAGE: Final = bytes(100)


class Sizes(NamedTuple):
    """How much is measured: ``messages`` in each of so many ``rounds``, a fan-out to ``queues``, and ``bindings``."""

    messages: int = 20_000
    rounds: int = 5
    queues: int = 100
    bindings: int = 10_000


class Row(NamedTuple):
    """A figure of several rounds, and what was wanted, if anything."""

    what: str
    found: list[float]
    unit: str
    wanted: str = ""

    @property
    def shown(self) -> str:
        """The median, and the spread."""
        low, middle, high = min(self.found), statistics.median(self.found), max(self.found)
        return f"{middle:,.2f} {self.unit} ({low:,.2f} - {high:,.2f})"


def rate(count: int, work: Callable[[], object]) -> float:
    """Return how many a second there were."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def send_all(client: txbroker.Connection, topic: str, key: bytes, count: int) -> None:
    """Send so many messages, pipelined, and wait for all."""
    for _ in range(count):
        client.send_async(topic, MESSAGE, key=key)
    client.flush()


def publishing(client: txbroker.Connection, sizes: Sizes) -> list[Row]:
    """Return a publish beside a send to a topic, and the deliveries of a fan-out beside those to one queue."""
    client.create_topic("bench")
    client.declare_queue("one")
    client.declare_exchange("fan", "fanout")
    for number in range(sizes.queues):
        client.declare_queue(f"fan{number}")
        client.bind("fan", f"fan{number}")
    count, few = sizes.messages, max(1, sizes.messages // sizes.queues)
    beside, fan, rates = list[float](), list[float](), list[float]()
    for _ in range(sizes.rounds):
        topic = rate(count, lambda: send_all(client, "bench", b"one", count))
        queue = rate(count, lambda: send_all(client, target_of("", True), b"one", count))
        spread = rate(few * sizes.queues, lambda: send_all(client, target_of("fan", True), b"", few))
        beside.append(queue / topic)
        fan.append(spread / queue)
        rates.append(queue)
    return [
        Row("publish to one queue, a second", rates, ""),
        Row("publish beside send to a topic", beside, "x"),
        Row(f"deliveries of a fan-out to {sizes.queues} beside those to one", fan, "x", ">= 0.3"),
    ]


def taking(client: txbroker.Connection, sizes: Sizes) -> list[Row]:
    """Return how many messages are taken and acknowledged a second, in hundreds and one by one."""
    together, single = list[float](), list[float]()
    with client.queue("one", prefetch=200) as queue:

        def take(count: int, most: int) -> None:
            for _ in range(count // most):
                messages = [found for _ in range(most) if (found := queue.get(10.0)) is not None]
                assert len(messages) == most, "one is missing"
                queue.ack(messages)

        for _ in range(sizes.rounds):
            some = sizes.messages // 2 // 100 * 100 or 100
            together.append(rate(some, lambda: take(some, 100)))  # noqa: B023 - called at once
            single.append(rate(some // 100, lambda: take(some // 100, 1)))  # noqa: B023
    return [
        Row("taken and acknowledged in hundreds, a second", together, ""),
        Row("taken and acknowledged one by one, each forced, a second", single, ""),
    ]


def routing(sizes: Sizes) -> list[Row]:
    """Return how long an exchange of each kind looks for the queues of a message among so many bindings."""
    fold, lsn, settings = QueuesFold(), 0, TopicSettings()
    for number in range(1, sizes.bindings + 1):
        made = Queue(f"q{number}", QueueSettings())
        fold.apply(lsn, TopicCreated(f"txbroker.queue.{number}", number, 1, settings, 0, queue=made), b"")
    rows = []
    for kind, pattern, key in (
        (ExchangeKind.DIRECT, "region.{}.order", "region.{}.order"),
        (ExchangeKind.TOPIC, "region.{}.*.#", "region.{}.order.new"),
    ):
        name = kind.name.lower()
        fold.apply(lsn, ExchangeDeclared(name, fold.next_exchange, ExchangeSettings(kind), 0), b"")
        for number in range(1, sizes.bindings + 1):
            fold.apply(lsn, Bound(Binding(name, pattern.format(number), f"q{number}"), 0), b"")
        exchange, found = fold.exchanges[name], list[float]()
        for _ in range(sizes.rounds):
            keys = [key.format(number) for number in range(1, sizes.bindings + 1)]
            began = time.perf_counter()
            for each in keys:
                assert len(fold.route(exchange, each, {})) == 1
            found.append((time.perf_counter() - began) / len(keys) * 1e6)
        rows.append(
            Row(f"routing by a {name} exchange with {sizes.bindings:,} bindings", found, "µs", "<= 20")
        )
    return rows


def run(folder: Path, sizes: Sizes) -> list[Row]:
    """Measure everything."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (
        processes.broker(folder / "data") as broker,
        txbroker.connect(broker.address, timeout=60.0) as client,
    ):
        rows = [*publishing(client, sizes), *taking(client, sizes)]
    shutil.rmtree(folder)
    return [*rows, *routing(sizes)]


def table(rows: list[Row]) -> Table:
    """Return the figures, beside what was wanted."""
    shown = Table(title="Queues")
    for title, justify in (("what", "left"), ("median (spread)", "right"), ("wanted", "right")):
        shown.add_column(title, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        shown.add_row(row.what, row.shown, row.wanted)
    return shown


@click.command()
@click.option("--messages", default=Sizes().messages, show_default=True, help="Messages of a round.")
@click.option("--rounds", default=Sizes().rounds, show_default=True, help="Rounds.")
@click.option("--queues", default=Sizes().queues, show_default=True, help="Queues of the fan-out.")
@click.option("--bindings", default=Sizes().bindings, show_default=True, help="Bindings of an exchange.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(folder: Path, **sizes: int) -> None:
    """Measure queues. Exits with 0 whether the targets are met or not."""
    console = Console()
    rows = run(folder, Sizes(**sizes))
    (console if console.is_terminal else Console(width=WIDTH)).print(table(rows))


if __name__ == "__main__":
    main()
