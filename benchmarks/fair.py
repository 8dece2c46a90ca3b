"""``make bench-fair``, or ``python -m benchmarks.fair``: what a client has of the broker while others take all.

The client sends one message after the other, with a pause, and each is forced; beside that the same on an idle broker.
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

from benchmarks import processes
from benchmarks.certificate import write_certificate
from benchmarks.fair_peers import TINY, TOPIC, kinds
from benchmarks.frames import SINGLE
from benchmarks.peer import Peer
from benchmarks.proc import memory_of
from benchmarks.processes import ServerProcess
from journal.constants import MIB
from txbroker.commands import Send, Sent

FOLDER: Final = Path("build/bench/fair")
WIDTH: Final = 120
PAUSE: Final = 0.003
TARGET: Final = 0.020
"""Seconds that its slowest in a hundred may be slower than on an idle broker."""
NUMBERS: Final = (1, 8, 40)
FILLED: Final = 20 * MIB
PER_CONNECTION: Final = 0.004
"""Seconds until one more peer has connected, over TLS too."""
CHUNK: Final = 4_000
"""Tiny frames of a request."""


class Latency(NamedTuple):
    """Seconds of a send, and how many were made; the broker's resident bytes at most so far."""

    median: float
    slow: float
    worst: float
    sends: int
    resident: int


class Turn(NamedTuple):
    """What one client had beside so many peers of a kind."""

    kind: str
    peers: int
    latency: Latency


def fill(peer: Peer) -> None:
    """Make the topic, and one of its partitions full of the smallest frames."""
    full = peer.create_topic(TOPIC, 3)[0]
    for _ in range(FILLED // (CHUNK * len(TINY))):
        peer.ask(Send(1, full), Sent, TINY * CHUNK)


def measure(broker: ServerProcess, certificate: Path | None, seconds: float) -> Latency:
    """Send for so long, one after the other."""
    found: list[float] = []
    with Peer(broker.port, certificate) as peer:
        partition = peer.partitions(TOPIC)[1].number
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(found) < 20:
            began = time.perf_counter()
            peer.ask(Send(1, partition), Sent, SINGLE)
            found.append(time.perf_counter() - began)
            time.sleep(PAUSE)
    cuts = statistics.quantiles(found, n=100)
    return Latency(statistics.median(found), cuts[98], max(found), len(found), memory_of(broker.pid).peak)


@contextlib.contextmanager
def beside(port: int, certificate: Path | None, kind: str, peers: int) -> Iterator[None]:
    """So many peers of a kind at work, in a process of their own; they connect one after the other, then all begin."""
    command = [sys.executable, "-m", "benchmarks.fair_peers", str(port), kind, str(peers)]
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
    """Each attack on a broker of its own, which had the client alone before."""
    turns: list[Turn] = []
    for name in names:
        for number in numbers:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            certificate = write_certificate(folder / "certificate.pem") if tls else None
            with processes.broker(folder / "data", certificate=certificate) as broker:
                with Peer(broker.port, certificate) as peer:
                    fill(peer)
                time.sleep(1.0)
                turns.append(Turn("", 0, measure(broker, certificate, seconds)))
                with beside(broker.port, certificate, name, number):
                    turns.append(Turn(name, number, measure(broker, certificate, seconds)))
            shutil.rmtree(folder)
    return turns


def table(turns: Sequence[Turn]) -> Table:
    """For people. What an idle broker gave is the median of all turns."""
    alone = [turn.latency for turn in turns if not turn.peers]
    median, slow = (
        statistics.median(each) for each in zip(*((a.median, a.slow) for a in alone), strict=True)
    )
    shown = Table(title="One client's sends, ms, beside peers that take all they can get")
    for title in ("beside", "peers", "p50", "p99", "longest", "p99 more than alone", "broker's peak, MiB"):
        shown.add_column(title, justify="left" if title == "beside" else "right")
    shown.add_row("nobody", "", f"{median * 1e3:.2f}", f"{slow * 1e3:.2f}", "", "", "")
    for kind, peers, latency in turns:
        if peers:
            more = latency.slow - slow
            mark = "" if more <= TARGET else "  missed"
            shown.add_row(
                kind, str(peers), f"{latency.median * 1e3:.1f}", f"{latency.slow * 1e3:.1f}",
                f"{latency.worst * 1e3:.0f}", f"{more * 1e3:.1f}{mark}", f"{latency.resident / MIB:.0f}",
            )  # fmt: skip
    return shown


NAMES: Final = [*kinds(0, 0)]


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
