"""``make demo``: a year of New York flights through a broker that is killed on the way. Nothing may be lost.

The year is sent and read back. Then workers handle it, with a database, and two of them and the broker are killed.

Exits with 1 unless every row of the source came back exactly once, in order per carrier, no day is half there, and
every row's effect is in the database exactly once.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

import txbroker
from demo.audit import AuditFailed, audited
from demo.consuming import work
from demo.database_process import DatabaseFailed
from demo.departures import with_malformed
from demo.killer import Killer
from demo.kills import draw
from demo.producer import Producer
from demo.program import ProgramFailed
from demo.source import FLIGHTS, TOPICS, Day, SourceError, read_year
from demo.summary import Run, faults_of, show
from demo.verify import Verdict, Verifier
from demo.workforce import WorkStoodStill
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess

FAILURES = (
    BrokerFailed, DatabaseFailed, ProgramFailed, SourceError, WorkStoodStill, txbroker.errors.TxBrokerError,
)  # fmt: skip

READ_STEP = 1_000
"""Rows between two moves of the progress bar while reading."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=int, help="Draw the kills from this seed (default: a new one, printed).")
@click.option(
    "--kills",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How often to kill the broker while sending.",
)
@click.option("--days", type=click.IntRange(1), help="Send only the first so many days (default: all).")
@click.option(
    "--data", type=click.Path(path_type=Path), help="A new directory for the broker's data; it is kept."
)
def main(seed: int | None, kills: int, days: int | None, data: Path | None) -> None:
    """Send the year 2013 of New York flights through a broker that is killed on the way, read it back, and have
    workers handle it, of which two are killed.
    """
    console = Console(highlight=False)
    seed = random.randrange(1_000_000) if seed is None else seed
    place = directory(data)
    console.print(f"Seed {seed}, directory {place}", markup=False, soft_wrap=True)
    try:
        run = carry_out(read_year()[:days], seed, kills, place, console)
    except FAILURES as error:
        console.print(f"The demo could not go on. {type(error).__name__}: {error}", markup=False, style="red")
        console.print(f"The broker's log and data are kept in {place}.", markup=False)
        sys.exit(1)
    show(run, console)
    report = place / "audit" if data else place.parent / "audit"
    failed = bool(faults_of(run)) | (not shown_by_spark(place / "data", report, run.days, console))
    if data is None and not failed:
        shutil.rmtree(place)
        console.print(f"{place} is removed; --data DIRECTORY keeps one.", markup=False, soft_wrap=True)
    sys.exit(1 if failed else 0)


def shown_by_spark(data: Path, report: Path, days: int, console: Console) -> bool:
    """Audit and analyse the directory with Spark; return whether it is sound."""
    console.print(
        f"Spark audits {data} against the source and looks at delays …", markup=False, soft_wrap=True
    )
    try:
        sound, text = audited(data, report, days)
    except AuditFailed as error:
        console.print(f"The audit could not be made: {error}", markup=False, style="red")
        return False
    console.print(text, markup=False, soft_wrap=True)
    if not sound:
        console.print(
            f"The audit has found something: see the page. {data} is kept.", markup=False, style="bold red"
        )
    return sound


def directory(wanted: Path | None) -> Path:
    """Return the folder for data and log: the one asked for, which must be new or empty, or else one below
    ``build``.
    """
    if wanted is None:
        parent = Path("build/demo")
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=parent, prefix="run-"))
    if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise click.BadParameter(f"{wanted} is there already and not an empty directory", param_hint="--data")
    wanted.mkdir(parents=True, exist_ok=True)
    return wanted


def carry_out(days: list[Day], seed: int, kills: int, place: Path, console: Console) -> Run:
    """Send, kill, restart, read back, verify; then have the workers handle it."""
    began = time.monotonic()
    plan = draw(seed, [day.name for day in days], kills)
    rows = {topic: sum(row.topic == topic for day in days for row in day.rows) for topic in TOPICS}
    days, malformed = with_malformed(days)
    to_send = sum(rows.values()) + 1
    # With the archive on, the audit sees every transaction, not only those that the journal still holds.
    broker = BrokerProcess(place / "data", place / "broker.log", ("--set", "outcome_archive=on"))
    broker.start()
    with stopped_at_the_end(broker), progress(console) as bar:
        tell = partial(bar.console.print, markup=False, soft_wrap=True)
        killer = Killer(broker, plan, tell)
        tell(f"{malformed.day}: with a malformed row on purpose, {malformed.line.decode()!r}")
        sending = bar.add_task("sending", total=to_send)
        reading = bar.add_task("reading", total=to_send, start=False)
        working = bar.add_task("working", total=rows[FLIGHTS] + 1, start=False)
        create_topics(broker.address)
        producer = Producer(broker.address, killer, tell, partial(bar.advance, sending))
        send_seconds = produce(producer, killer, days)
        bar.start_task(reading)
        verdict, read_seconds = read_back(broker.address, days, bar, reading)
        bar.start_task(working)
        done = work(broker, days, place, seed, tell, partial(bar.advance, working))
    return Run(
        seed=seed,
        place=str(place),
        days=len(days),
        rows_in_source=rows,
        rows_sent=producer.rows_sent,
        rows_sent_again=producer.rows_sent_again,
        killed=killer.killed,
        fates=producer.fates,
        kills_planned=len(plan),
        finished_in_doubt=len(producer.finished_in_doubt),
        send_seconds=send_seconds,
        read_seconds=read_seconds,
        recoveries=broker.recoveries()[: 1 + len(killer.killed)],
        total_seconds=time.monotonic() - began,
        verdict=verdict,
        work=done,
    )


@contextmanager
def stopped_at_the_end(broker: BrokerProcess) -> Iterator[None]:
    """Stop the broker in order if all went well, else at once: its files are evidence then."""
    try:
        yield
    except BaseException:
        broker.kill_for_good()
        raise
    broker.stop()


def progress(console: Console) -> Progress:
    """Return the progress bars; where there is no terminal, only the sentences above them are printed."""
    return Progress(
        TextColumn("{task.description:>8}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
        console=console,
    )


def create_topics(url: str) -> None:
    """Create the two topics."""
    with txbroker.connect(url, client="demo") as connection:
        for topic, partitions in TOPICS.items():
            connection.create_topic(topic, partitions=partitions)


def produce(producer: Producer, killer: Killer, days: list[Day]) -> float:
    """Send everything, over all restarts of the broker; return the seconds."""
    began = time.monotonic()
    try:
        producer.run(days)
        killer.finish()
    finally:
        producer.close()
    return time.monotonic() - began


def read_back(url: str, days: list[Day], bar: Progress, task: TaskID) -> tuple[Verdict, float]:
    """Read everything from the first offset on, as any consumer would, and verify it."""
    began = time.monotonic()
    with txbroker.connect(url, client="demo consumer") as connection:
        batch, messages = [], []
        for message in connection.consume(list(TOPICS), start="earliest", follow=False):
            batch.append(message)
            if len(batch) == READ_STEP:
                bar.advance(task, len(batch))
                messages += batch
                batch = []
        messages += batch
        bar.advance(task, len(batch))
    seconds = time.monotonic() - began
    verifier = Verifier(days)
    verifier.take(messages)
    return verifier.verdict(), seconds


if __name__ == "__main__":
    main()
