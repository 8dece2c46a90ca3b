"""A restart of a real broker is measured from making its process to the answer to its first send."""

from __future__ import annotations

import re
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.harness import machine_limits, processes
from benchmarks.harness.frames import SINGLE
from benchmarks.harness.peer import PATIENCE, Peer, UnexpectedAnswer
from benchmarks.harness.process_memory import memory_of
from benchmarks.recovery.scenes import SETTINGS, Scene
from journal.constants import MIB
from journal.formats import filenames
from journal.quantities import Quantity, written
from txbroker.wire.answers import Sent
from txbroker.wire.requests import Send

NO_CHECKPOINT: Final = (
    f"checkpoint_bytes={SETTINGS.checkpoint_bytes}",
    f"checkpoint_interval={written(Quantity.DURATION, SETTINGS.checkpoint_interval)}",
)
"""Settings that keep what is to be replayed for the next restart."""

_REPORT: Final = re.compile(r"recovery=([\d.]+)s replayed=(\d+) journal_bytes=(\d+) .*in_doubt=(\d+)")


class Restart(NamedTuple):
    """One start: seconds from making the process to the answer to the first send, and the broker's own figures.

    ``checked`` is the time in seconds in which a plain loop reads the same journal files and takes their CRC-32C, over
    as many bytes as were replayed.
    """

    seconds: float
    recovery: float
    records: int
    bytes: int
    in_doubt: int
    memory: float
    checked: float


class Measured(NamedTuple):
    """A scene and all of its restarts."""

    scene: Scene
    restarts: list[Restart]

    def median(self, field: str) -> float:
        """Return the median of a field over the restarts."""
        return median(float(getattr(restart, field)) for restart in self.restarts)


def restart(data: Path, scene: Scene) -> Restart:
    """Start a broker on the directory and let it accept a message; end it as the scene says."""
    with processes.broker(data, *NO_CHECKPOINT) as broker:
        with Peer(broker.port) as peer:
            peer.ask(Send(2, 1), Sent, SINGLE)
            seconds = time.monotonic() - broker.executed_at
            memory = memory_of(broker.pid).peak / MIB
            _wait_for_spare(data)
            if not scene.stopped:
                broker.kill()
        found = _REPORT.search(broker.ready_line)
    if found is None:
        raise UnexpectedAnswer(f"no account of the recovery in {broker.ready_line!r}")
    recovery, (records, size, in_doubt) = float(found[1]), (int(found[number]) for number in (2, 3, 4))
    plain = machine_limits.read_and_check(sorted((data / filenames.JOURNAL_DIRECTORY).glob("*.journal")))
    return Restart(seconds, recovery, records, size, in_doubt, memory, size / plain.rate if size else 0.0)


def _wait_for_spare(data: Path) -> None:
    """Wait until the next journal file is ready, as it is in a broker that has run for a second; otherwise the next
    start would have to make it, which takes 0.1 s.
    """
    until = time.monotonic() + PATIENCE
    while not (data / filenames.SPARE_NEXT).exists():
        if time.monotonic() > until:
            raise UnexpectedAnswer(f"no {filenames.SPARE_NEXT} after {PATIENCE:g} s")
        time.sleep(0.01)
