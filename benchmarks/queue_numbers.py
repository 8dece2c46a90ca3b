"""``python -m benchmarks.queue_numbers`` measures how memory and starts grow with queues, and what waits in them.

Memory is resident memory of the broker's process, less what it had before; a start is from the launch of the process
until it says that it is ready.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

import txbroker
from benchmarks.harness.process_memory import allow_descriptors, memory_of
from journal.constants import KIB, MIB
from txbroker.client.producer.exchange_queue import target_of
from txbroker.drill.broker.broker_process import BrokerProcess, free_port

FOLDER: Final = Path("build/bench/queue-numbers")
WIDTH: Final = 110
CLIENTS: Final = 8
PATIENCE: Final = 300.0
"""Seconds after which a compaction is not waited for any more."""
AMQP_START: Final = b"AMQP\x00\x00\x09\x01"


class Sizes(NamedTuple):
    """How many there are: messages of 1 KiB that wait, idle connections of AMQP, queues, short-lived queues, and
    messages of 256 bytes of which all but each thousandth are acknowledged, and messages of 100 bytes that a session
    has or a queue, and loses at once.
    """

    waiting: int = 1_000_000
    connections: int = 10_000
    queues: int = 10_000
    transient: int = 2_000
    passing: int = 2_000_000
    lost: int = 10_000_000


class Row(NamedTuple):
    """A figure, and what was wanted of it."""

    what: str
    found: str
    wanted: str


class Running(NamedTuple):
    """A broker that runs, and how many seconds its start took."""

    broker: BrokerProcess
    client: txbroker.Connection
    seconds: float

    @property
    def resident(self) -> int:
        """Its resident memory, in bytes."""
        return memory_of(self.broker.pid).resident


@contextmanager
def started(data: Path, *options: str) -> Iterator[Running]:
    """Start a broker; stop it at the end."""
    began = time.perf_counter()
    with BrokerProcess(data, data.with_name("broker.log"), options) as broker:
        seconds = time.perf_counter() - began
        with txbroker.connect(broker.address, timeout=120.0) as client:
            yield Running(broker, client, seconds)
        broker.stop()


def mib(size: float) -> str:
    """Return bytes as MiB."""
    return f"{size / MIB:,.0f} MiB"


def waiting(data: Path, sizes: Sizes) -> Iterator[Row]:
    """Messages of 1 KiB that wait in a queue, all delivered to one session, and a start with them after a kill."""
    with started(data) as running:
        before, client = running.resident, running.client
        client.declare_queue("full")
        for _ in range(sizes.waiting):
            client.send_async(target_of("", True), bytes(KIB), key=b"full")
        client.flush()
        at_rest = running.resident
        yield Row(f"{sizes.waiting:,} x 1 KiB that wait", mib(at_rest - before), "<= 300 MiB")
        with client.queue("full", prefetch=4096) as queue:
            for _ in range(sizes.waiting):
                assert queue.get(60.0) is not None, "one is missing"
            more = running.resident - at_rest
            yield Row(f"{sizes.waiting:,} of them unacknowledged", mib(more), "<= 60 MiB more")
        running.broker.kill()
    with started(data) as running:
        wanted = "<= 2 s"
        yield Row(
            f"a start after a kill, with {sizes.waiting:,} that wait", f"{running.seconds:.2f} s", wanted
        )


def connections(data: Path, sizes: Sizes) -> Iterator[Row]:
    """Connections of AMQP that have logged in and do nothing."""
    port = free_port()
    with ExitStack() as stack:
        listen = f"tcp:{port}:interface=127.0.0.1"
        running = stack.enter_context(started(data, "--listen-amqp", listen))
        before = running.resident
        for _ in range(sizes.connections):
            opened = socket.create_connection(("127.0.0.1", port), timeout=30.0)
            stack.enter_context(opened)
            log_in(opened)
        each = (running.resident - before) / sizes.connections
        yield Row(
            f"each of {sizes.connections:,} idle connections of AMQP", f"{each / KIB:.1f} KiB", "<= 40 KiB"
        )


def log_in(connection: socket.socket) -> None:
    """Open a connection of AMQP without heartbeats, by the bytes that it takes."""
    connection.sendall(AMQP_START)
    _frame(connection)
    connection.sendall(_method(10, 11, b"\0\0\0\0\x05PLAIN" + _long(b"\0guest\0guest") + b"\x05en_US"))
    _frame(connection)
    tuned = _method(10, 31, (2047).to_bytes(2) + (131_072).to_bytes(4) + bytes(2))
    connection.sendall(tuned + _method(10, 40, b"\x01/\0\0"))
    opened = _frame(connection)
    assert opened[:4] == b"\0\x0a\0\x29", opened


def _long(text: bytes) -> bytes:
    return len(text).to_bytes(4) + text


def _method(kind: int, method: int, arguments: bytes) -> bytes:
    payload = kind.to_bytes(2) + method.to_bytes(2) + arguments
    return b"\x01\0\0" + _long(payload) + b"\xce"


def _frame(connection: socket.socket) -> bytes:
    head = _exactly(connection, 7)
    return _exactly(connection, int.from_bytes(head[3:]) + 1)[:-1]


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        some = connection.recv(size - len(found))
        assert some, "the broker has closed the connection"
        found += some
    return found


def queues(data: Path, sizes: Sizes) -> Iterator[Row]:
    """Durable queues, and a start with them; then queues that are declared and deleted, one after the other."""
    room = ("--set", f"max_queues={sizes.queues + CLIENTS}")
    with started(data, *room) as running:
        empty, before, client = running.seconds, running.resident, running.client
        for number in range(sizes.queues):
            client.declare_queue(f"q{number}")
        each = (running.resident - before) / sizes.queues
        yield Row(f"each of {sizes.queues:,} empty queues", f"{each / KIB:.1f} KiB", "")
        running.broker.kill()
    with started(data, *room) as running:
        more = running.seconds - empty
        yield Row(f"a start with {sizes.queues:,} queues, less an empty one", f"{more:.2f} s", "<= 3 s")
        rate = passing(running.broker.address, sizes.transient)
        what = f"queues that {CLIENTS} clients declare and delete, a second"
        yield Row(what, f"{rate:,.0f}", ">= 1,000")


def passing(address: str, count: int) -> float:
    """Have several clients declare and delete queues; return how many a second."""

    def work(first: int) -> None:
        with txbroker.connect(address, timeout=60.0) as client:
            for number in range(first, count, CLIENTS):
                client.declare_queue(f"t{number}", durable=False)
                client.delete_queue(f"t{number}")

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(work, first) for first in range(CLIENTS)]:
            done.result()
    return count / (time.perf_counter() - began)


def compacting(data: Path, sizes: Sizes) -> Iterator[Row]:
    """Messages that pass others that are not acknowledged, and what is left of them on the disk."""
    count = sizes.passing
    with started(data) as running:
        client = running.client
        client.create_topic("beside")
        client.declare_queue("passed")
        for _ in range(count):
            client.send_async(target_of("", True), bytes(256), key=b"passed")
        client.flush()
        before = latencies(client)
        full, left = size_of(data / "partitions"), 0
        with client.queue("passed", prefetch=4096) as queue:
            for first in range(0, count, 1000):
                some = [queue.get(60.0) for _ in range(min(1000, count - first))]
                queue.ack([each for each in some[1:] if each is not None])
                left += 1
            began, during = time.perf_counter(), list[float]()
            live = full * left // count
            bound = live * 13 // 10 + 64 * MIB
            while size_of(data / "partitions") > bound and time.perf_counter() - began < PATIENCE:
                during += latencies(client, 200)
            took, found = time.perf_counter() - began, size_of(data / "partitions")
        what = f"{count:,} x 256 bytes in segments, of which each 1,000th is not acknowledged"
        yield Row(what, f"{mib(full)}, then {mib(found)}", f"< {mib(bound)}")
        yield Row("until that, after the last acknowledgement", f"{took:.0f} s", "<= 60 s")
        beside = percentile(during or before, 99) / percentile(before, 99)
        yield Row("p99 of sends beside it, as a multiple of that before", f"{beside:.1f} x", "<= 2 x")


def losing(data: Path, sizes: Sizes) -> Iterator[Row]:
    """Sends of another client while the session that has all messages of a queue ends, while they are purged, and while
    a queue that has as many is deleted.
    """
    count = sizes.lost
    with started(data) as running, txbroker.connect(running.broker.address, timeout=600.0) as other:
        client = running.client
        other.create_topic("beside")
        client.declare_queue("full")
        put(client, count)
        before = percentile(latencies(other), 99)
        yield Row(f"p99 of sends beside a queue with {count:,} x 100 bytes", f"{before * 1000:.1f} ms", "")
        taker = txbroker.connect(running.broker.address, timeout=600.0)
        queue = taker.queue("full", prefetch=4096)
        for _ in range(count):
            assert queue.get(60.0) is not None, "one is missing"

        def end_session() -> None:
            taker.close()
            while client.queues("full")[0].unacknowledged:
                time.sleep(0.1)

        yield beside(other, f"end of a session that has {count:,} messages", end_session)
        yield beside(other, f"purge of {count:,} messages", lambda: client.purge_queue("full"))
        put(client, count)
        yield beside(
            other, f"deletion of a queue with {count:,} messages", lambda: client.delete_queue("full")
        )


def put(client: txbroker.Connection, count: int) -> None:
    """Send so many messages to the queue."""
    for _ in range(count):
        client.send_async(target_of("", True), bytes(100), key=b"full")
    client.flush()


def beside(other: txbroker.Connection, what: str, work: Callable[[], object]) -> Row:
    """Return how long sends take while something is done, and for two seconds behind it."""
    with ThreadPoolExecutor(1) as pool:
        began, found = time.perf_counter(), list[float]()
        doing = pool.submit(work)
        while not doing.done():
            found += latencies(other, 20)
        took = time.perf_counter() - began
        doing.result()
        while time.perf_counter() - began < took + 2.0:
            found += latencies(other, 20)
    shown = f"{percentile(found, 99) * 1000:.1f} ms, the longest {max(found) * 1000:.0f} ms ({took:.1f} s)"
    return Row(f"p99 of sends beside the {what}", shown, "<= 20 ms")


def latencies(client: txbroker.Connection, count: int = 2000) -> list[float]:
    """Return how long sends take, one after the other, in seconds."""
    found = list[float]()
    for _ in range(count):
        began = time.perf_counter()
        client.send("beside", b"x" * 100)
        found.append(time.perf_counter() - began)
    return found


def percentile(values: list[float], percent: int) -> float:
    """Return the value below which so many percent of them lie."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def size_of(folder: Path) -> int:
    """Return the bytes of all files there."""
    found = 0
    for each in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found += each.stat().st_size if each.is_file() else 0
    return found


SCENES: Final[dict[str, Callable[[Path, Sizes], Iterator[Row]]]] = {
    "waiting": waiting,
    "connections": connections,
    "queues": queues,
    "compacting": compacting,
    "losing": losing,
}


def table(rows: list[Row]) -> Table:
    """Return the figures, beside what was wanted."""
    shown = Table(title="Numbers of queues")
    for title, justify in (("what", "left"), ("found", "right"), ("wanted", "right")):
        shown.add_column(title, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        shown.add_row(*row)
    return shown


@click.command()
@click.argument("scenes", nargs=-1, type=click.Choice(list(SCENES)))
@click.option("--waiting", default=Sizes().waiting, show_default=True, help="Messages that wait.")
@click.option("--connections", default=Sizes().connections, show_default=True, help="Connections of AMQP.")
@click.option("--queues", default=Sizes().queues, show_default=True, help="Durable queues.")
@click.option("--transient", default=Sizes().transient, show_default=True, help="Short-lived queues.")
@click.option("--passing", default=Sizes().passing, show_default=True, help="Messages that pass others.")
@click.option("--lost", default=Sizes().lost, show_default=True, help="Messages that are lost at once.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(scenes: tuple[str, ...], folder: Path, **sizes: int) -> None:
    """Measure SCENES, all by itself. Exits with 0 whether the targets are met or not."""
    allow_descriptors()
    console, rows = Console(), list[Row]()
    for name in scenes or SCENES:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rows += SCENES[name](folder / "data", Sizes(**sizes))
        shutil.rmtree(folder)
    (console if console.is_terminal else Console(width=WIDTH)).print(table(rows))


if __name__ == "__main__":
    main()
