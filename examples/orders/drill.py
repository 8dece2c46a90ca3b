"""``make drill-orders``: the shop at work while any of its parties is killed, again and again. Nothing may be lost.

Exits with 1 unless rows and messages agree at the end, each order has exactly one invoice, and nothing is in doubt.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import txbroker
from demo.premises import new_folder, remove
from demo.program import ProgramFailed
from examples.orders.compare import Facts, Fault, collect, compare
from examples.orders.premises import FAILURES, Premises

PRODUCERS = 2
GAP = 1.0
"""The most seconds between two events, once all parties are at work again."""

DOWN = 0.6
"""The most seconds that a party stays down."""

QUIET_WITHIN = 60.0
"""Seconds without progress after which invoices that are missing count as missing."""

RATE = 400.0
"""Orders that a producer tries to place each second: practically without a pause."""

ORDERS_EACH_KILL = 2
"""With fewer orders for each kill than this, the drill has proved little."""


@dataclass(frozen=True)
class Event:
    """An event: parties are killed at once, ``gap`` seconds after all were at work again, and are down for ``down``."""

    victims: tuple[str, ...]
    gap: float
    down: float


@dataclass
class Run:
    """The results of a drill. ``left_prepared``: transactions that were prepared right after a kill."""

    seed: int
    database: str = ""
    """PostgreSQL's folder, kept if there are faults."""
    kills: Counter[str] = field(default_factory=Counter)
    left_prepared: int = 0
    seconds: float = 0.0
    said: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[Fault, str]] = field(default_factory=list)
    facts: Facts | None = None


def draw(seed: int, kills: int, parties: Sequence[str]) -> list[Event]:
    """Draw events with so many SIGKILLs in all. Each party is hit before one is hit again; each fifth event hits
    several.

    The gaps are drawn anew to a thousandth of a second, so that kills fall into any step of a transaction.
    """
    chance = random.Random(f"{seed}/orders")
    events: list[Event] = []
    left, cycle = kills, list[str]()
    while left:
        cycle = cycle or chance.sample(list(parties), len(parties))
        victims = [cycle.pop()]
        if chance.random() < 0.2:
            others = [party for party in parties if party not in victims]
            victims += chance.sample(others, min(chance.choice((1, 1, 2, len(others))), left - 1))
        left -= len(victims)
        events.append(Event(tuple(victims), chance.uniform(0.0, GAP), chance.uniform(0.0, DOWN)))
    return events


class Drill:
    """The drill carries the events out. ``advance`` is called at each kill, ``tell`` at each event."""

    def __init__(
        self, premises: Premises, run: Run, advance: Callable[[int], None], tell: Callable[[str], None]
    ) -> None:
        self._premises = premises
        self._run = run
        self._advance = advance
        self._tell = tell
        self._programs = {program.name: program for program in premises.programs}

    def carry_out(self, events: Sequence[Event]) -> None:
        """Carry out all events, one after the other."""
        for event in events:
            self._premises.wait_for_business()
            time.sleep(event.gap)
            self._premises.check()
            self._hit(event)
            self._tell(f"killed {', '.join(event.victims)}")
            self._advance(len(event.victims))

    def _hit(self, event: Event) -> None:
        for victim in event.victims:
            self._kill(victim)
        if "broker" not in event.victims:
            self._run.left_prepared += self._prepared()
        time.sleep(event.down)
        for victim in event.victims:
            self._start(victim)

    def _kill(self, victim: str) -> None:
        if victim == "broker":
            self._premises.broker.kill()
        elif victim == "postgresql":
            self._premises.postgresql.kill()
        else:
            self._programs[victim].kill()
        self._run.kills[victim] += 1

    def _start(self, victim: str) -> None:
        if victim == "broker":
            self._premises.broker.start()
        elif victim == "postgresql":
            self._premises.postgresql.start()
        else:
            self._programs[victim].start()

    def _prepared(self) -> int:
        with txbroker.connect(self._premises.broker.address, client="drill") as broker:
            return len(broker.transactions([txbroker.State.PREPARED]))


def parties(premises: Premises) -> list[str]:
    """Return everything that can be killed."""
    return ["broker", "postgresql", *(program.name for program in premises.programs)]


def settle(premises: Premises) -> None:
    """Close the shop in order: take no new orders, wait for all invoices, leave nothing in doubt."""
    for producer in premises.producers:
        producer.stop()
    resolve(premises)
    for _ in invoices_until_quiet(premises):
        premises.check()
    for consumer in premises.consumers:
        consumer.stop()
    premises.resolver.stop()
    let_a_minute_pass(premises)
    resolve(premises)


def let_a_minute_pass(premises: Premises) -> None:
    """Wait until resolvers may end the decision rows of killed programs: for a minute these could be alive."""
    with psycopg.connect(premises.database_url) as database:
        database.execute(
            "UPDATE txbroker_decision SET decided_at = decided_at - INTERVAL '61 seconds' WHERE xid <> 'identity'"
        )


def invoices_until_quiet(premises: Premises) -> Iterator[int]:
    """Yield the number of invoices until there are as many as orders, or no more come for a while."""
    invoices, since = -1, time.monotonic()
    with psycopg.connect(premises.database_url, autocommit=True) as database:
        while time.monotonic() - since < QUIET_WITHIN:
            orders, now = database.execute(
                "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM invoices)"
            ).fetchone() or (0, 0)
            if now != invoices:
                invoices, since = now, time.monotonic()
            if now >= orders:
                return
            yield now
            time.sleep(0.1)


def resolve(premises: Premises) -> None:
    """Run a resolver until nothing is left for it, or nothing changes any more."""
    with (
        txbroker.connect(premises.broker.address, client="last resolver") as broker,
        txbroker.Resolver(lambda: psycopg.connect(premises.database_url), broker) as resolver,
    ):
        deadline = time.monotonic() + QUIET_WITHIN
        while time.monotonic() < deadline:
            found = resolver.resolve()
            if found.is_quiet and not found.young and not found.removed:
                return


def judge(premises: Premises, run: Run, kills: int) -> None:
    """Collect the facts and compare them."""
    said = [line for producer in premises.producers for line in producer.lines()]
    run.said = Counter(line.split()[0] for line in said)
    run.facts = collect(premises.database_url, premises.broker.address, said)
    run.facts.least_orders = ORDERS_EACH_KILL * kills
    run.faults = compare(run.facts)


def drill(seed: int, kills: int, folder: Path, console: Console) -> Run:
    """Run the whole drill."""
    run = Run(seed)
    began = time.monotonic()
    with Premises(folder, PRODUCERS, RATE) as premises, progress(console) as bar:
        task = bar.add_task("kills", total=kills)
        work = Drill(
            premises,
            run,
            lambda count: bar.advance(task, count),
            lambda line: bar.console.print(line, markup=False, style="dim"),
        )
        work.carry_out(draw(seed, kills, parties(premises)))
        premises.wait_for_business()
        bar.console.print("closing the shop", style="dim")
        settle(premises)
        judge(premises, run, kills)
        premises.keep = bool(run.faults)
        run.database = str(premises.postgresql.folder)
    run.seconds = time.monotonic() - began
    return run


def progress(console: Console) -> Progress:
    """Return the progress bar; where there is no terminal, nothing is drawn."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip


def table(run: Run) -> Table:
    """Return the results as a table."""
    assert run.facts is not None
    shown = Table("what", title=f"seed {run.seed}, {run.seconds:.0f} s", title_justify="left")
    shown.add_column("how many", justify="right")
    for victim, count in sorted(run.kills.items()):
        shown.add_row(f"SIGKILL to {victim}", f"{count:,}")
    shown.add_section()
    shown.add_row("left prepared right after a kill", f"{run.left_prepared:,}")
    for word, count in sorted(run.said.items()):
        shown.add_row(f"orders of which a producer said: {word}", f"{count:,}")
    shown.add_section()
    for name in ("orders", "order_messages", "invoices", "invoice_messages", "in_doubt", "decisions"):
        shown.add_row(name.replace("_", " "), f"{len(getattr(run.facts, name)):,}")
    return shown


def document(run: Run) -> str:
    """Return the results as JSON, with every fault."""
    assert run.facts is not None
    return json.dumps(
        {
            "seed": run.seed, "seconds": round(run.seconds, 1), "kills": dict(run.kills),
            "left_prepared": run.left_prepared, "said": dict(run.said),
            "orders": len(run.facts.orders), "order_messages": len(run.facts.order_messages),
            "invoices": len(run.facts.invoices), "invoice_messages": len(run.facts.invoice_messages),
            "in_doubt": list(run.facts.in_doubt), "decisions": list(run.facts.decisions),
            "faults": [{"fault": fault.name, "what": fault.value, "which": which} for fault, which in run.faults],
        },
        indent=2,
    )  # fmt: skip


@click.command()
@click.option("--kills", type=click.IntRange(1), default=200, show_default=True, help="SIGKILLs in all.")
@click.option("--seed", type=int, help="Draw victims and gaps from this seed (default: a new one, printed).")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
def main(kills: int, seed: int | None, file: Path | None) -> None:
    """Kill programs, broker and PostgreSQL at random while the shop works, then compare rows with messages."""
    console = Console(highlight=False)
    seed = random.randrange(1_000_000) if seed is None else seed
    folder = new_folder(Path("build/drill-orders"))
    console.print(f"Seed {seed}, logs and the broker's data: {folder}", markup=False, soft_wrap=True)
    try:
        run = drill(seed, kills, folder, console)
    except (*FAILURES, ProgramFailed) as error:
        lines = [f"The drill could not go on. {error}", *getattr(error, "__notes__", ())]
        console.print("\n".join(lines), markup=False, style="red", soft_wrap=True)
        sys.exit(1)
    console.print(table(run))
    if file is not None:
        file.write_text(document(run) + "\n")
    for fault, which in run.faults[:50]:
        console.print(f"{fault.value}: {which}", markup=False, style="red", soft_wrap=True)
    if run.faults:
        console.print(
            f"{len(run.faults)} faults. Kept: {folder} and PostgreSQL's {run.database}. "
            f"Again with the same kills: --seed {seed} --kills {kills}",
            markup=False,
            soft_wrap=True,
        )
        sys.exit(1)
    console.print("Each row has its message, each order one invoice, and nothing is in doubt.", style="green")
    remove(folder)


if __name__ == "__main__":
    main()
