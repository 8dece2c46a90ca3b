"""``make bench-fair``, or ``python -m benchmarks.fair``, measures what a client gets while others take all they can.

The client does one thing after the other, with a pause, and each is forced; the same is measured on an idle broker.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.fair.certificate import write_certificate
from benchmarks.fair.greedy_peers import TOPIC, kinds
from benchmarks.fair.greedy_workers import PARTITIONS, WIDE, WORKERS
from benchmarks.fair.well_behaved import CLIENTS, PRODUCER, SAME, SMALL, TWO_MB
from benchmarks.harness import processes
from benchmarks.harness.frames import TINY
from benchmarks.harness.peer import Peer
from benchmarks.harness.process_memory import memory_of
from journal.constants import MIB
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.wire.messages import Send, Sent

FOLDER: Final = Path("build/bench/fair")
WIDTH: Final = 150
TARGET: Final = 0.020
"""By how many seconds the slowest in a hundred may be slower than on an idle broker."""
NUMBERS: Final = (1, 8, 40)
FILLED: Final = 20 * MIB
PER_CONNECTION: Final = 0.004
"""Seconds for one more peer to connect, over TLS too."""
CHUNK: Final = 4_000
"""Tiny frames in a request."""
LEAST: Final = 20
"""The least number of operations of the client, however long they take."""


class Latency(NamedTuple):
    """The client's latencies in seconds, and their number; the broker's greatest resident bytes so far."""

    median: float
    slow: float
    worst: float
    sends: int
    resident: int


class Turn(NamedTuple):
    """The latency of one client beside that many peers of a kind."""

    kind: str
    peers: int
    client: str
    latency: Latency


class Attack(NamedTuple):
    """An attack: the clients that are measured beside it, and the greatest number of peers."""

    clients: tuple[str, ...] = (SMALL,)
    peers: int = 1_000_000


ATTACKS: Final = {name: Attack() for name in kinds(0, 0)} | {
    "halves of sends of 15 MiB": Attack((SMALL, TWO_MB)),
    "halves of sends of 15 MiB that drip": Attack((SMALL, TWO_MB)),
    "a commit of 256 MiB of 1 KiB messages": Attack((SMALL, SAME), 1),
    "a commit of 32 MiB of tiny frames": Attack((SMALL, SAME), 1),
    "clients that open 100 producers": Attack((PRODUCER,)),
    "clients that make 50,000 pairs": Attack((PRODUCER,)),
}
assert set(ATTACKS) == {*kinds(0, 0), *WORKERS}


def fill(peer: Peer) -> None:
    """Make the topics, and fill one of the partitions with the smallest frames."""
    peer.create_topic(WIDE, PARTITIONS)
    full = peer.create_topic(TOPIC, 3)[0]
    for _ in range(FILLED // (CHUNK * len(TINY))):
        peer.ask(Send(1, full), Sent, TINY * CHUNK)


def measure(broker: BrokerProcess, certificate: Path | None, seconds: float, name: str) -> Latency:
    """Have the client work for so long, one operation after the other."""
    found: list[float] = []
    client = CLIENTS[name]
    with Peer(broker.port, certificate) as peer:
        once = client.begin(peer, broker, certificate)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(found) < LEAST:
            began = time.perf_counter()
            once()
            found.append(time.perf_counter() - began)
            time.sleep(client.pause)
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    return Latency(statistics.median(found), cuts[98], max(found), len(found), memory_of(broker.pid).peak)


@contextlib.contextmanager
def beside(port: int, certificate: Path | None, kind: str, peers: int) -> Iterator[None]:
    """Run that many peers of a kind in a process of their own; they connect one after the other, then all begin."""
    command = [sys.executable, "-m", "benchmarks.fair.greedy_peers", str(port), kind, str(peers)]
    command += [] if certificate is None else [str(certificate)]
    with subprocess.Popen(command) as process:
        try:
            time.sleep(1.5 + peers * PER_CONNECTION)
            yield
        finally:
            process.kill()


def run(
    names: Sequence[str], numbers: Sequence[int], seconds: float, folder: Path, tls: bool = False
) -> list[Turn]:
    """Run each attack on a broker of its own for each client, which is measured alone before."""
    turns: list[Turn] = []
    for name in names:
        for number in sorted({min(number, ATTACKS[name].peers) for number in numbers}):
            for client in ATTACKS[name].clients:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                certificate = write_certificate(folder / "certificate.pem") if tls else None
                with processes.broker(folder / "data", certificate=certificate) as broker:
                    with Peer(broker.port, certificate) as peer:
                        fill(peer)
                    time.sleep(1.0)
                    turns.append(Turn("", 0, client, measure(broker, certificate, seconds, client)))
                    with beside(broker.port, certificate, name, number):
                        turns.append(
                            Turn(name, number, client, measure(broker, certificate, seconds, client))
                        )
                shutil.rmtree(folder)
    return turns


def alone(turns: Sequence[Turn]) -> dict[str, tuple[float, float]]:
    """Return each client's median and slowest in a hundred on an idle broker: medians of all its turns."""
    found: dict[str, tuple[float, float]] = {}
    for client in dict.fromkeys(turn.client for turn in turns):
        idle = [turn.latency for turn in turns if not turn.peers and turn.client == client]
        found[client] = (
            statistics.median(one.median for one in idle),
            statistics.median(one.slow for one in idle),
        )
    return found


def table(turns: Sequence[Turn]) -> Table:
    """Return the results as a table."""
    shown = Table(title="One client, ms, beside peers that take all they can get")
    for title in (
        "beside", "peers", "client", "times", "p50", "p99", "longest", "p99 more than alone", "broker's peak, MiB",
    ):  # fmt: skip
        shown.add_column(title, justify="left" if title in ("beside", "client") else "right")
    idle = alone(turns)
    for client, (median, slow) in idle.items():
        shown.add_row("nobody", "", client, "", f"{median * 1e3:.2f}", f"{slow * 1e3:.2f}", "", "", "")
    for kind, peers, client, latency in turns:
        if peers:
            more = latency.slow - idle[client][1]
            mark = "" if more <= TARGET else "  missed"
            shown.add_row(
                kind, str(peers), client, str(latency.sends), f"{latency.median * 1e3:.1f}",
                f"{latency.slow * 1e3:.1f}", f"{latency.worst * 1e3:.0f}", f"{more * 1e3:.1f}{mark}",
                f"{latency.resident / MIB:.0f}",
            )  # fmt: skip
    return shown


NAMES: Final = [*ATTACKS]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--peers", "numbers", multiple=True, type=click.IntRange(1), default=NUMBERS, show_default=True)
@click.option(
    "--seconds", default=4.0, show_default=True, type=click.FloatRange(0.1), help="For each measurement."
)
@click.option("--tls", is_flag=True, help="All connections over TLS.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(
    names: tuple[str, ...],
    numbers: tuple[int, ...],
    seconds: float,
    tls: bool,
    file: Path | None,
    folder: Path,
) -> None:
    """Measure what a well-behaved client has of the broker beside greedy peers.

    Exits with 0 whether the target is met or not.
    """
    turns = run(names or NAMES, numbers, seconds, folder, tls)
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(table(turns))
    if file is not None:
        rows = [turn._asdict() | {"latency": turn.latency._asdict()} for turn in turns]
        file.write_text(json.dumps({"seconds": seconds, "turns": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.fair")
