"""``python -m benchmarks.archive`` measures the cost of the outcome archive: with and without it in turn, in one
run.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.harness import processes
from benchmarks.harness.frames import SINGLE
from benchmarks.harness.load import Dialogue, converse
from benchmarks.harness.peer import Peer
from benchmarks.harness.transactions import OnePhase, TwoPhase
from benchmarks.runs import TOPIC, WARM_UP, timed
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.vfs.file_window import window
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import FileReader, Group
from journal.walks.journal_walk import surveyed

CLIENTS: Final = 64
KINDS: Final[dict[str, Callable[[Peer, int, bytes], Dialogue]]] = {
    "one phase": OnePhase,
    "two phases": TwoPhase,
}


class Sample(NamedTuple):
    """One measurement: transactions a second, and the broker's processor time and bytes for each of them."""

    rate: float
    cost: float
    journal: float
    archive: float


def measure(kind: str, archive: bool, seconds: float, data: Path) -> Sample:
    """Measure a new broker with or without an archive, and 64 clients with one transaction after the other."""
    shutil.rmtree(data, ignore_errors=True)
    setting = f"outcome_archive={'on' if archive else 'off'}"
    with processes.broker(data, setting) as broker, Peer(broker.port) as peer:
        [number] = peer.create_topic(TOPIC, 1)
        peers = [Peer(broker.port) for _ in range(CLIENTS)]
        try:
            dialogues = [KINDS[kind](each, number, SINGLE) for each in peers]
            warm = converse(dialogues, WARM_UP * seconds)
            tally, usage = timed(broker, lambda: converse(dialogues, seconds))
        finally:
            for each in peers:
                each.socket.close()
        kept = sum(partition.bytes for partition in peer.partitions(OUTCOMES_TOPIC)) if archive else 0
    done = warm.completed + tally.completed
    journaled = journal_bytes(OSFilesystem(data))
    shutil.rmtree(data)
    return Sample(tally.rate, usage.cost, journaled / done, kept / done)


def journal_bytes(filesystem: OSFilesystem) -> int:
    """Return the bytes on disk of the groups in the journal's files, in whole blocks."""
    total = 0
    for file in surveyed(filesystem):
        assert file.header is not None
        with window(filesystem, file.path) as bytes_of:
            groups = FileReader(bytes_of, file.path, file.header).groups()
            total += sum(each.end - each.position for each in groups if isinstance(each, Group))
    return total


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="For measuring each of them once.")
@click.option("--repeat", default=5, show_default=True, help="How often; all are gone through each time.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option("--folder", default=Path("build/bench"), type=click.Path(path_type=Path), show_default=True)
def main(seconds: float, repeat: int, file: Path | None, folder: Path) -> None:
    """Measure transactions with the outcome archive off and on, in turn, and show the difference."""
    folder.mkdir(parents=True, exist_ok=True)
    samples: dict[str, dict[bool, list[Sample]]] = {kind: {False: [], True: []} for kind in KINDS}
    for number in range(repeat):
        for kind, both in samples.items():
            for archive in (False, True) if number % 2 else (True, False):
                both[archive].append(measure(kind, archive, seconds, folder / "data"))
    table = Table(
        "64 clients", "archive", "transactions/s", "broker µs each", "journal B each", "archive B each"
    )
    for kind, both in samples.items():
        for archive, found in both.items():
            middle = Sample(*map(statistics.median, zip(*found, strict=True)))
            table.add_row(
                kind, "on" if archive else "off", f"{middle.rate:,.0f}", f"{middle.cost:.1f}", f"{middle.journal:.0f}",
                f"{middle.archive:.0f}",
            )  # fmt: skip
        pairs = list(zip(both[False], both[True], strict=True))
        dearer = statistics.median(on.cost / off.cost for off, on in pairs) - 1
        slower = 1 - statistics.median(on.rate / off.rate for off, on in pairs)
        table.add_row(kind, "costs", f"{slower:.1%} fewer", f"{dearer:.1%} dearer", "", "", end_section=True)
    Console(width=120).print(table)
    if file is not None:
        plain = {kind: {"on" if a else "off": f for a, f in both.items()} for kind, both in samples.items()}
        file.write_text(json.dumps(plain, indent=2) + "\n")


if __name__ == "__main__":
    main()
