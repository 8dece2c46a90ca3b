"""``python -m benchmarks.strangers`` measures what a client gets while strangers connect, a thousand a second.

The client sends one message after the other, each forced, with a pause. It is measured alone and beside strangers in
turn, on the same broker. ``python -m benchmarks.strangers connect PORT KIND RATE SECONDS`` are the strangers.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

import txbroker
from benchmarks.fair.certificate import write_certificate
from benchmarks.harness import processes
from txbroker.wire.codec import encode
from txbroker.wire.messages import MAGIC, VERSIONS, Hello

FOLDER: Final = Path("build/bench/strangers")
WIDTH: Final = 130
TARGET: Final = 0.005
"""By how many seconds the slowest in a hundred may be slower than alone."""
TOPIC: Final = "strangers"
PAUSE: Final = 0.003
AHEAD: Final = 0.5
"""Seconds that the strangers have been coming before anything is measured."""
MESSAGE: Final = bytes(100)


class Kind(NamedTuple):
    """A kind of stranger: what it says first, whether it goes at once, and whether it speaks TLS."""

    says: bytes
    leaves: bool = False
    tls: bool = False


def client_hello() -> bytes:
    """Return the first bytes of a handshake, the same for all."""
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


KINDS: Final = {
    "say hello and stay": Kind(encode(Hello(1, MAGIC, list(VERSIONS), "stranger"))),
    "say nothing and leave": Kind(b"", leaves=True),
    "begin a handshake and stay": Kind(client_hello(), tls=True),
    "leave before the handshake": Kind(b"", leaves=True, tls=True),
}


class Latency(NamedTuple):
    """The client's latencies in seconds, and how many connects there were a second meanwhile."""

    median: float
    slow: float
    worst: float
    sends: int
    connects: float = 0.0


class Pair(NamedTuple):
    """The client alone, and beside strangers of a kind, one after the other."""

    kind: str
    alone: Latency
    beside: Latency

    @property
    def more(self) -> float:
        """By how much the slowest in a hundred is slower."""
        return self.beside.slow - self.alone.slow


def connect(port: int, kind: Kind, rate: float, seconds: float) -> int:
    """Be strangers: connect at a rate, say what the kind says, and stay until the broker has had enough."""
    selector = selectors.DefaultSelector()
    made = 0
    began = time.perf_counter()
    while (now := time.perf_counter() - began) < seconds:
        while made < now * rate:
            made += 1
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            selector.register(one, selectors.EVENT_WRITE)
        for key, events in selector.select(0.001):
            found = key.fileobj
            assert isinstance(found, socket.socket)
            if _goes(found, kind, events):
                selector.unregister(found)
                found.close()
            elif events & selectors.EVENT_WRITE:
                selector.modify(found, selectors.EVENT_READ)
    return made


def _goes(one: socket.socket, kind: Kind, events: int) -> bool:
    """Take a stranger's turn; return whether it is over."""
    try:
        if events & selectors.EVENT_WRITE:
            one.send(kind.says)
            return kind.leaves
        return not one.recv(4096)
    except OSError:
        return True


@contextlib.contextmanager
def strangers(port: int, name: str, rate: float, seconds: float) -> Iterator[list[float]]:
    """Have strangers come in a process of their own; afterwards the list has how many did, a second."""
    words = ["connect", str(port), name, str(rate), str(seconds + AHEAD)]
    command = [sys.executable, "-m", "benchmarks.strangers", *words]
    found: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # they begin
        time.sleep(AHEAD)
        yield found
        found.append(int(process.stdout.read()) / (seconds + AHEAD))


def measure(client: txbroker.Connection, seconds: float) -> Latency:
    """Have the client work for so long."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        client.send(TOPIC, MESSAGE)
        found.append(time.perf_counter() - began)
        time.sleep(PAUSE)
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    return Latency(statistics.median(found), cuts[98], max(found), len(found))


def run(name: str, rate: float, seconds: float, repeat: int, folder: Path) -> list[Pair]:
    """Measure beside one kind of strangers, as often, on a broker of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind = KINDS[name]
    certificate = write_certificate(folder / "certificate.pem") if kind.tls else None
    pairs = []
    with (
        processes.broker(folder / "data", certificate=certificate) as broker,
        txbroker.connect(broker.address) as client,
    ):
        client.create_topic(TOPIC)
        measure(client, 0.5)
        for _ in range(repeat):
            alone = measure(client, seconds)
            with strangers(broker.port, name, rate, seconds) as came:
                beside = measure(client, seconds)
            pairs.append(Pair(name, alone, beside._replace(connects=came[0])))
    shutil.rmtree(folder)
    return pairs


def table(pairs: list[Pair]) -> Table:
    """Return the medians as a table."""
    shown = Table(title="One client's send, ms, beside strangers; medians of all repeats")
    for title in (
        "strangers that",
        "connects/s",
        "p50 alone",
        "beside",
        "p99 alone",
        "beside",
        "p99 more",
        "longest",
    ):
        shown.add_column(title, justify="left" if title.startswith("s") else "right")
    for name in dict.fromkeys(pair.kind for pair in pairs):
        mine = [pair for pair in pairs if pair.kind == name]
        alone, beside = (
            Latency(*map(statistics.median, zip(*found, strict=True)))
            for found in ([pair.alone for pair in mine], [pair.beside for pair in mine])
        )
        more = statistics.median(pair.more for pair in mine)
        shown.add_row(
            name, f"{beside.connects:,.0f}", f"{alone.median * 1e3:.2f}", f"{beside.median * 1e3:.2f}",
            f"{alone.slow * 1e3:.2f}", f"{beside.slow * 1e3:.2f}",
            f"{more * 1e3:.2f}{'' if more <= TARGET else '  missed'}", f"{beside.worst * 1e3:.0f}",
        )  # fmt: skip
    return shown


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*KINDS]))
@click.option("--rate", default=1000.0, show_default=True, help="Connects a second.")
@click.option("--seconds", default=4.0, show_default=True, help="For measuring each of them once.")
@click.option("--repeat", default=5, show_default=True, help="How often, alone and beside in turn.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(
    names: tuple[str, ...], rate: float, seconds: float, repeat: int, file: Path | None, folder: Path
) -> None:
    """Measure what a client has of the broker while strangers connect: all kinds of them, or only NAMES.

    Exits with 0 whether the target is met or not.
    """
    pairs = [pair for name in names or KINDS for pair in run(name, rate, seconds, repeat, folder)]
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(table(pairs))
    if file is not None:
        rows = [
            {"kind": kind, "alone": alone._asdict(), "beside": beside._asdict()}
            for kind, alone, beside in pairs
        ]
        settings = {"rate": rate, "seconds": seconds, "repeat": repeat}
        file.write_text(json.dumps({**settings, "pairs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["connect"]:
        print("they begin", flush=True)
        print(connect(int(sys.argv[2]), KINDS[sys.argv[3]], float(sys.argv[4]), float(sys.argv[5])))
    else:
        main(prog_name="python -m benchmarks.strangers")
