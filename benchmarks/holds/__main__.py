"""``make bench-holds``, or ``python -m benchmarks.holds``, measures how long the largest requests hold the reactor.

The broker runs in this process, and its reactor is turned by hand: a hold is one turn. The processor time of the
reactor's thread counts, so that other work on the machine does not show; requests are written in between.
"""

from __future__ import annotations

import contextlib
import json
import math
import select
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint

from benchmarks.harness.crowd import HELLO
from benchmarks.holds import snapshot
from benchmarks.holds.scenes import scenes
from journal.constants import MIB
from journal.engine.settings import JournalSettings
from journal.folds.table import client_folds
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from txbroker.broker.sessions.settings import SECOND, BrokerSettings
from txbroker.server.running_broker import RunningBroker
from txbroker.server.service import tune
from txbroker.server.settings.config import Config, ServiceSettings
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder, encode

installed: Any = reactor
FOLDER: Final = Path("build/bench/holds")
GOAL: Final = 0.005
"""The most seconds that a request may hold the reactor."""
PATIENCE: Final = 0.02
END: Final = 60.0
"""The most seconds that the threads have for the work in hand, until the folder is removed."""
AFTERMATH: Final = 0.2
"""Seconds for work that a request has started and that goes on after its answer."""


class Hold(NamedTuple):
    """The reactor's time for one request: its longest turn, all turns, and their number.

    ``refused`` is the error if it was; seconds of the processor.
    """

    name: str
    longest: float
    total: float
    turns: int
    refused: str


class Reactor:
    """The process's reactor, turned by hand."""

    def __init__(self) -> None:
        self._reactor = installed
        self._reactor.startRunning(False)

    def turn(self, most: float) -> float | None:
        """Run one turn, after that long a wait at most; return its processor time, None if there was nothing to do."""
        reactor, timeout = self._reactor, self._reactor.timeout()
        wait = most if timeout is None else min(most, timeout)
        if not select.select([reactor._poller.fileno()], [], [], wait)[0] and wait == most and most:
            return None
        began = time.thread_time()
        reactor.runUntilCurrent()
        reactor.doIteration(0)
        return time.thread_time() - began


class Broker:
    """A broker in this process, and one client of it."""

    def __init__(self, folder: Path, reactor: Reactor) -> None:
        self._reactor = reactor
        self.settings = BrokerSettings()
        engine = recover(
            OSFilesystem(str(folder)),
            SystemClock(),
            JournalSettings(low_water_bytes=MIB),
            folds=client_folds(),
        )
        config = Config(ServiceSettings(data=str(folder), scrub_rate=0), self.settings, JournalSettings())
        tune(config.service.switch_interval / SECOND)
        self.engine = engine
        self.serving = RunningBroker(engine, config, installed, _failed)
        self.serving.start()
        ports: list[Any] = []
        endpoint: Any = TCP4ServerEndpoint(installed, 0, interface="127.0.0.1")
        endpoint.listen(self.serving.factory).addCallback(ports.append)
        self._socket = socket.create_connection(("127.0.0.1", ports[0].getHost().port))
        self._socket.setblocking(False)
        self._decoder = answer_decoder(64 * MIB)
        self.serial = self.session = 0
        self.session = self.ask(HELLO)[-1].session

    def turns(self, data: bytes = b"") -> Iterator[float]:
        """Send a request, run turns until a moment after the answer; yield the processor time of each turn."""
        left = memoryview(data)
        self.answers: list[Any] = []
        end = math.inf
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                if left:
                    left = left[self._socket.send(left) :]
            took = self._reactor.turn(0.0 if left else PATIENCE)
            if took is not None:
                yield took
            with contextlib.suppress(BlockingIOError):
                self.answers += [head for head, _ in self._decoder.feed(self._socket.recv(16 * MIB))]
            if self.answers and end == math.inf:
                end = time.monotonic() + AFTERMATH

    def ask(self, data: bytes) -> list[Any]:
        """Send a request and return the answers."""
        for _ in self.turns(data):
            pass
        return self.answers

    def add(self, data: bytes) -> None:
        """Send a request that is not answered."""
        self.ask(data + encode(messages.Ping(1)))

    def create(self, name: str, partitions: int) -> list[int]:
        """Create a topic; return its partitions' numbers."""
        made = self.ask(encode(messages.CreateTopic(1, name, partitions, TopicSettings())))[-1]
        assert isinstance(made, messages.Topics), made
        return [part.number for part in made.topics[0].partitions]

    def measure(self, name: str, data: bytes) -> Hold:
        """Measure one request."""
        times = list(self.turns(data))
        refused = next((each.error for each in self.answers if isinstance(each, messages.Refused)), "")
        return Hold(name, max(times), sum(times), len(times), refused)


def _failed(doing: str, error: BaseException) -> None:
    raise SystemExit(f"{doing}: {error}")


def table(holds: list[Hold]) -> Table:
    """Return the holds as a table."""
    shown = Table(title="The reactor's thread, ms of the processor")
    for title in ("request", "longest turn", "all turns", "turns", "refused"):
        shown.add_column(title, justify="left" if title in ("request", "refused") else "right")
    for hold in holds:
        mark = "" if hold.longest <= GOAL else " *"
        shown.add_row(
            hold.name,
            f"{hold.longest * 1e3:.1f}{mark}",
            f"{hold.total * 1e3:.1f}",
            str(hold.turns),
            hold.refused,
        )
    return shown


@click.command()
@click.argument("words", nargs=-1)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes. It is removed before and after.",
)  # fmt: skip
def main(words: tuple[str, ...], file: Path | None, folder: Path) -> None:
    """Measure how long requests hold the reactor: all, or those whose names have one of WORDS; * is above 5 ms."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    broker = Broker(folder / "data", Reactor())
    holds = []
    for name, make in scenes(broker):
        data = make()
        hold = broker.measure(name, data)
        if not words or any(word in name for word in words):
            holds.append(hold)
    if not words or any(word in snapshot.NAME for word in words):
        took = snapshot.snapshot_time()
        holds.append(Hold(snapshot.NAME, took, took, 1, ""))
    broker.serving.end(END)
    shutil.rmtree(folder)
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table(holds))
    if file is not None:
        file.write_text(json.dumps([hold._asdict() for hold in holds], indent=1) + "\n")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.holds")
