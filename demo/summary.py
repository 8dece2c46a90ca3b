"""The summary of a run: its tables and its exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo.consuming import Work
from demo.departures import LATE
from demo.killer import Killed
from demo.producer import Fate
from demo.source import TOPICS
from demo.verify import Verdict
from demo.workforce import WORKERS

GOOD = "Every row came back exactly once, in order per carrier, and no day is half there."
DONE = "Every row's effect is in the database exactly once, in order per carrier."
ADVICE = "The broker's log and data are kept in {place}; run again with --seed {seed} for the same kills."


MOST_OF_A_REASON = 33
"""Characters of a dead letter's reason that are shown."""


@dataclass(frozen=True)
class Run:
    """The results of a run of the demo. Times are in seconds."""

    seed: int
    place: str
    days: int
    rows_in_source: dict[str, int]
    rows_sent: int
    rows_sent_again: int
    killed: Sequence[Killed]
    fates: Mapping[str, Fate]
    kills_planned: int
    finished_in_doubt: int
    recoveries: Sequence[float]
    """Seconds of the first start and of each restart, by the broker's own clock."""
    send_seconds: float
    read_seconds: float
    total_seconds: float
    verdict: Verdict
    work: Work


def faults_of(run: Run) -> list[str]:
    """Return why the run failed, as sentences; empty if it did not fail."""
    faults = [f"{kind}: {count:,} times" for kind, count in run.verdict.faults.items()]
    if len(run.killed) != run.kills_planned:
        faults.append(f"{run.kills_planned} kills were planned, {len(run.killed)} were carried out")
    if run.rows_sent != sum(run.rows_in_source.values()) + 1:
        faults.append(
            f"the producer sent {run.rows_sent:,} rows, the source has {run.rows_in_source}, and one is malformed"
        )
    return faults + run.work.faults


def show(run: Run, console: Console) -> None:
    """Print the tables and the verdict."""
    console.print(_kills(run))
    console.print(_figures(run))
    console.print(_workers(run.work))
    console.print(_work(run.work))
    faults = faults_of(run)
    if not faults:
        console.print(f"{GOOD}\n{DONE}", style="bold green", soft_wrap=True)
        return
    console.print("The run failed:", style="bold red")
    for line in [*faults, *run.verdict.examples, *run.work.verdict.examples]:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print(ADVICE.format(place=run.place, seed=run.seed), markup=False, soft_wrap=True)


def _kills(run: Run) -> Table:
    table = Table(box=SIMPLE_HEAD, title="Kills", title_justify="left", title_style="bold")
    for name in ("aimed at", "hit", "while", "that day then"):
        table.add_column(name)
    table.add_column("back after", justify="right")
    for killed in run.killed:
        fate = run.fates.get(killed.day)
        table.add_row(
            killed.kill.phase.value,
            killed.day,
            killed.phase.value,
            "was committed" if fate is None else fate.value,
            f"{killed.back_after:.2f} s",
        )
    return table


def _figures(run: Run) -> Table:
    table = Table(box=SIMPLE_HEAD, title="A year of flights", title_justify="left", title_style="bold")
    table.add_column("figure")
    table.add_column("value", justify="right")
    source = sum(run.rows_in_source.values())
    read = sum(run.verdict.rows.values())
    rows = [("days, one transaction each", f"{run.days:,}"), ("rows in the source", f"{source:,}")]
    rows += [(f"  of them {topic}", f"{run.rows_in_source[topic]:,}") for topic in TOPICS]
    rows += [
        ("malformed row, sent on purpose", "1"),
        ("rows sent", f"{run.rows_sent:,}"),
        ("  sent again after a rollback", f"{run.rows_sent_again:,}"),
        ("rows read", f"{read:,}"),
        ("kills (SIGKILL)", f"{len(run.killed)}"),
        ("prepared transactions found and finished", f"{run.finished_in_doubt}"),
        ("rows/s sent, kills included", f"{run.rows_sent / max(run.send_seconds, 1e-9):,.0f}"),
        ("rows/s read", f"{read / max(run.read_seconds, 1e-9):,.0f}"),
        ("recovery after a kill, by the broker's clock", _range(run.recoveries[1:])),
        ("from the signal until it is ready again", _range([killed.back_after for killed in run.killed])),
        ("all in all", f"{run.total_seconds:.1f} s"),
    ]
    for name, value in rows:
        table.add_row(name, value)
    return table


def _workers(work: Work) -> Table:
    table = Table(box=SIMPLE_HEAD, title="Workers, one group", title_justify="left", title_style="bold")
    for name, justify in (("worker", "left"), ("rows handled", "right"), ("end", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("taken over after", justify="right")
    deaths = {death.worker: death for death in work.watched.deaths}
    for name in WORKERS:
        death = deaths.get(name)
        after = None if death is None else death.taken_over_after
        table.add_row(
            name,
            f"{work.handled.get(name, 0):,}",
            "in order" if death is None else f"SIGKILL, {death.left:,} rows left",
            "" if after is None else f"{after:.1f} s",
        )
    return table


def _work(work: Work) -> Table:
    table = Table(box=SIMPLE_HEAD, title="What they did", title_justify="left", title_style="bold")
    table.add_column("figure")
    table.add_column("value", justify="right")
    rows = [
        ("flights, with the malformed row", f"{work.rows:,}"),
        ("rows in PostgreSQL", f"{sum(work.handled.values()):,}"),
        (f"{LATE // 60} hours late, done at a later attempt", f"{work.very_late:,}"),
        ("all rows tried again", f"{work.tried_again:,}"),
        ("broker ready again after its SIGKILL", _range(work.watched.broker_back_after)),
        ("rows/s handled, kills included", f"{work.rows / max(work.watched.seconds, 1e-9):,.0f}"),
        ("dead letters", f"{len(work.letters)}"),
    ]
    rows += [(f"  row {each.row}, {each.attempts} attempts", shortened(each.why)) for each in work.letters]
    rows.append(("every row's effect exactly once", "yes" if not work.verdict.faults else "no"))
    for name, value in rows:
        table.add_row(name, escape(value))
    return table


def shortened(why: str) -> str:
    """Return a reason that fits into a table."""
    return why if len(why) <= MOST_OF_A_REASON else f"{why[:MOST_OF_A_REASON]} …"


def _range(seconds: Sequence[float]) -> str:
    if not seconds:
        return "–"
    if len(seconds) == 1:
        return f"{seconds[0]:.2f} s"
    return f"{min(seconds):.2f} to {max(seconds):.2f} s"
