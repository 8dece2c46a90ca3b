"""``python -m benchmarks.backups`` measures what sends take while a backup of the broker is made.

Each round sends at the same rate, begun on time whether the ones before are answered or not: first alone, then beside
a backup into an empty folder, which reads and writes all that the broker has. Figures are ratios of the two in a round.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

import txbroker
from journal.constants import KIB, MIB
from txbroker.drill.broker.broker_process import BrokerProcess

FOLDER: Final = Path("build/bench/backups")
WIDTH: Final = 110
WANTED: Final = 3.0
PARTITIONS: Final = 8
PACE: Final = 50
"""MiB in a second that the backup of the service reads and writes, too."""


class Round(NamedTuple):
    """Of one round the 99th percentiles in ms, alone and beside backups; how long a backup took, in seconds."""

    alone: float
    beside: float
    took: float

    @property
    def ratio(self) -> float:
        """How much longer the slowest in a hundred took beside the backup."""
        return self.beside / self.alone


def command(*words: str) -> list[str]:
    """Return the command line of the program."""
    return [sys.executable, "-m", "txbroker", *words]


def fill(address: str, size: int) -> None:
    """Send so many bytes to a topic, so that there is something to be read."""
    with txbroker.connect(address, timeout=60.0) as client:
        client.create_topic("kept", partitions=PARTITIONS)
        value = bytes(64 * KIB)
        for _ in range(size // len(value)):
            client.send_async("kept", value)
        client.flush()


def slowest(address: str, rate: int, seconds: float) -> float:
    """Send for so long at that rate; return the 99th percentile of what a send takes, in ms."""
    words = ("bench", "produce", "--broker", address, "--rate", str(rate), "--size", "1KiB", "--no-verify")
    done = subprocess.run(
        command(*words, "--duration", f"{seconds:g}s", "--json"), check=True, stdout=subprocess.PIPE
    )
    found: float = json.loads(done.stdout)["latency"]["p99"]
    return found / 1000


class Backups:
    """Makes backups one after the other, each into a folder of its own, as a context."""

    def __init__(self, address: str, data: Path, folder: Path, bytes_a_second: int) -> None:
        self._words = (
            ("--broker", address, "--rate", str(bytes_a_second)) if bytes_a_second else ("--broker", address)
        )
        self._data, self._folder = data, folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._make)
        self.seconds: list[float] = []
        self.failed = ""

    def __enter__(self) -> Backups:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.failed:
            raise click.ClickException(self.failed)

    def _make(self) -> None:
        while not self._ended.is_set() and not self.failed:
            began = time.perf_counter()
            into = self._folder / str(len(self.seconds))
            done = subprocess.run(
                command("backup", "create", str(self._data), str(into), *self._words),
                capture_output=True,
                text=True,
            )
            self.seconds.append(time.perf_counter() - began)
            self.failed = done.stderr if done.returncode else ""
            shutil.rmtree(into, ignore_errors=True)


def measure(folder: Path, size: int, rate: int, seconds: float, rounds: int, pace: int) -> list[Round]:
    """Return the rounds."""
    found = []
    with BrokerProcess(folder / "data", folder / "broker.log", ()) as broker:
        fill(broker.address, size)
        for _ in range(rounds):
            alone = slowest(broker.address, rate, seconds)
            with Backups(broker.address, broker.data_dir, folder / "backups", pace) as backups:
                beside = slowest(broker.address, rate, seconds)
            found.append(Round(alone, beside, statistics.median(backups.seconds)))
        broker.stop()
    return found


def table(rounds: list[Round], what: str) -> Table:
    """Return the figures of all rounds, beside what is wanted."""
    shown = Table(title=f"Sends beside a backup, {what}")
    for title, justify in (("what", "left"), ("median", "right"), ("spread", "right"), ("wanted", "right")):
        shown.add_column(title, justify=justify)  # type: ignore[arg-type]
    for name, values, unit, wanted in (
        ("p99 alone", [each.alone for each in rounds], "ms", ""),
        ("p99 beside backups", [each.beside for each in rounds], "ms", ""),
        ("beside, as a multiple of alone", [each.ratio for each in rounds], "x", f"< {WANTED:g}"),
        ("a backup takes", [each.took for each in rounds], "s", ""),
    ):
        spread = f"{min(values):.2f} - {max(values):.2f}"
        shown.add_row(name, f"{statistics.median(values):.2f} {unit}", spread, wanted)
    return shown


@click.command()
@click.option("--mib", default=1024, show_default=True, help="MiB that the broker has before.")
@click.option("--rate", default=2000, show_default=True, help="Sends of 1 KiB in a second.")
@click.option("--seconds", default=20.0, show_default=True, help="How long each measurement takes.")
@click.option("--rounds", default=3, show_default=True, help="Rounds.")
@click.option(
    "--pace",
    default=PACE,
    show_default=True,
    help="MiB in a second that a backup reads and writes; 0: no bound.",
)
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(folder: Path, mib: int, rate: int, seconds: float, rounds: int, pace: int) -> None:
    """Measure sends beside backups. Exits with 0 whether the target is met or not."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "backups").mkdir(parents=True)
    found = measure(folder, mib * MIB, rate, seconds, rounds, pace * MIB)
    shutil.rmtree(folder)
    console = Console()
    what = f"{mib:,} MiB, {rate:,} sends of 1 KiB in a second, " + (f"{pace} MiB/s" if pace else "no bound")
    (console if console.is_terminal else Console(width=WIDTH)).print(table(found, what))


if __name__ == "__main__":
    main()
