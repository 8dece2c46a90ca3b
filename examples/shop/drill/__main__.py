"""``make drill-shop``. Exits with 1 unless each order and each of its tasks is there once, and nothing is in doubt."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from demo.premises import new_folder, remove
from examples.orders.drill import progress
from examples.shop.drill.drill import Run, drill
from examples.shop.drill.judgement import Facts, Fault
from examples.shop.drill.premises import FAILURES

SHOWN = 20
"""So many faults are printed; --json has all."""


def table(run: Run) -> Table:
    """Return the results as a table."""
    facts = run.facts
    assert facts is not None
    title = f"{'the naive shop, ' if run.naive else ''}seed {run.seed}, {run.seconds:.0f} s"
    shown = Table("what", title=title, title_justify="left")
    shown.add_column("how many", justify="right")
    for victim, count in sorted(run.kills.items()):
        shown.add_row(f"SIGKILL to {victim}", f"{count:,}")
    shown.add_section()
    for moment, count in sorted(run.moments.items()):
        shown.add_row(f"SIGKILL at: {moment}", f"{count:,}")
    shown.add_row("left prepared right after a kill", f"{run.left_prepared:,}")
    shown.add_section()
    for name in ("acknowledged", "unknown", "refused"):
        shown.add_row(f"orders of which a customer knows: {name}", f"{len(getattr(facts, name)):,}")
    shown.add_row("orders", f"{len(facts.orders):,}")
    for task, done in facts.tasks.items():
        shown.add_row(f"{task}: done", f"{len(done):,}")
    lost, twice = plain(run, facts)
    shown.add_row("suggest, a plain task: lost, and done twice", f"{lost:,}, {twice:,}")
    shown.add_section()
    counts = Counter(fault for fault, _ in run.faults)
    for fault in Fault:
        shown.add_row(fault.value, f"{counts[fault]:,}", style="red" if counts[fault] else "")
    return shown


def plain(run: Run, facts: Facts) -> tuple[int, int]:
    """Return for how many orders the plain task was lost, and for how many it was done more than once."""
    done = Counter(run.plain)
    return len(facts.orders) - len(done), sum(count > 1 for count in done.values())


def document(run: Run) -> str:
    """Return the results as JSON, with every fault."""
    facts = run.facts
    assert facts is not None
    lost, twice = plain(run, facts)
    return json.dumps(
        {
            "seed": run.seed, "naive": run.naive, "seconds": round(run.seconds, 1), "kills": dict(run.kills),
            "moments": dict(run.moments), "left_prepared": run.left_prepared,
            "attempts": {attempt.name: count for attempt, count in run.attempts.items()},
            "acknowledged": len(facts.acknowledged), "unknown": len(facts.unknown), "refused": len(facts.refused),
            "orders": len(facts.orders), "tasks": {task: len(done) for task, done in facts.tasks.items()},
            "plain": {"lost": lost, "twice": twice}, "queues": dict(facts.queues),
            "faults": [{"fault": fault.name, "what": fault.value, "which": which} for fault, which in run.faults],
        },
        indent=2,
    )  # fmt: skip


@click.command()
@click.option("--kills", type=click.IntRange(1), default=200, show_default=True, help="SIGKILLs in all.")
@click.option(
    "--seed", type=int, help="Draw victims, moments and gaps from this seed (default: a new one, printed)."
)
@click.option("--naive", is_flag=True, help="Do it to the shop that sends its tasks by on_commit.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
def main(kills: int, seed: int | None, naive: bool, file: Path | None) -> None:
    """Kill web server, Celery, broker and PostgreSQL while customers order, then look for what is lost or doubled."""
    console = Console(highlight=False)
    seed = random.randrange(1_000_000) if seed is None else seed
    folder = new_folder(Path("build/drill-shop"))
    console.print(f"Seed {seed}, logs and the broker's data: {folder}", markup=False, soft_wrap=True)
    try:
        with progress(console) as bar:
            task = bar.add_task("kills", total=kills)

            def tell(line: str, count: int) -> None:
                bar.console.print(line, markup=False, style="dim", soft_wrap=True)
                bar.advance(task, count)

            run = drill(seed, kills, folder, naive, tell)
    except FAILURES as error:
        lines = [f"The drill could not go on. {error}", *getattr(error, "__notes__", ())]
        console.print("\n".join(lines), markup=False, style="red", soft_wrap=True)
        sys.exit(1)
    console.print(table(run))
    if file is not None:
        file.write_text(document(run) + "\n")
    for fault, which in run.faults[:SHOWN]:
        console.print(f"{fault.value}: {which}", markup=False, style="red", soft_wrap=True)
    if run.faults:
        console.print(
            f"{len(run.faults)} faults. Kept: {folder} and PostgreSQL's {run.database}. "
            f"Again with the same kills: --seed {seed} --kills {kills}{' --naive' if naive else ''}",
            markup=False,
            soft_wrap=True,
        )
        sys.exit(1)
    console.print("Each order and each of its tasks is there once, and nothing is in doubt.", style="green")
    remove(folder)


if __name__ == "__main__":
    main()
