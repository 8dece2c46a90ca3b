"""The drill: customers order, events are carried out, the shop is closed in order, and what is stored is judged."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import txbroker
from examples.shop.drill.customers import Attempt, Customers
from examples.shop.drill.events import HAS_MOMENTS, Event, draw
from examples.shop.drill.facts import TASKS, collect, ordered, queues
from examples.shop.drill.judgement import Facts, Fault, judge
from examples.shop.drill.moments import Moment, Watch
from examples.shop.drill.premises import Premises, wait_until
from examples.shop.drill.services import Service

CUSTOMERS = 3
RATE = 2.0
"""Orders of each customer a second: not more than the tasks can follow on a busy machine."""

BUSY_WITHIN = 90.0
"""Seconds for the shop to be at work again once all its parties are up."""

HELD_WITHIN = 5.0
"""Seconds to wait for a process that comes to a moment; after that somebody is killed at any moment."""

QUIET_AFTER = 40.0
"""Seconds without progress after which what is missing counts as missing."""

ORDERS_EACH_KILL = 2
"""With fewer orders for each kill than this, the drill has proved little."""

Tell = Callable[[str, int], None]
"""Takes a line, and how many kills it is about."""


@dataclass
class Run:
    """The results of a drill. ``left_prepared``: transactions that were prepared right after a kill."""

    seed: int
    naive: bool
    database: str = ""
    """PostgreSQL's folder, kept if there are faults."""
    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    left_prepared: int = 0
    seconds: float = 0.0
    attempts: Counter[Attempt] = field(default_factory=Counter)
    plain: Sequence[str] = ()
    """The orders for which the plain task was done."""
    facts: Facts | None = None
    faults: list[tuple[Fault, str]] = field(default_factory=list)


def drill(seed: int, kills: int, folder: Path, naive: bool, tell: Tell) -> Run:
    """Run the whole drill."""
    run = Run(seed, naive)
    began = time.monotonic()
    held = folder / "held"
    held.mkdir()
    with Premises(folder, naive, held) as premises:
        customers = Customers(premises.web_port, seed, CUSTOMERS, RATE)
        try:
            customers.start()
            work = Drill(premises, customers, Watch(held), run, tell)
            moments = [each for each in Moment if not (naive and each is Moment.TASK_BEFORE_PREPARE)]
            work.carry_out(draw(seed, kills, moments))
            work.wait_for_business()
        finally:
            customers.stop()
        tell("closing the shop", 0)
        settle(premises)
        run.plain = ordered(premises, "orders_suggestion")
        run.attempts = customers.attempts
        run.facts = collect(premises, customers)
        run.facts.least_orders = ORDERS_EACH_KILL * kills
        run.faults = judge(run.facts)
        premises.keep = bool(run.faults)
        run.database = str(premises.postgresql.folder)
    run.seconds = time.monotonic() - began
    return run


class Drill:
    """The drill carries the events out. ``tell`` is called at each."""

    def __init__(self, premises: Premises, customers: Customers, watch: Watch, run: Run, tell: Tell) -> None:
        self._premises = premises
        self._customers = customers
        self._watch = watch
        self._run = run
        self._tell = tell
        self._chance = random.Random(f"{run.seed}/children")

    def carry_out(self, events: Sequence[Event]) -> None:
        """Carry out all events, one after the other."""
        for event in events:
            self.wait_for_business()
            time.sleep(event.gap)
            self._premises.check()
            held = None if event.moment is None else self._watch.wait_for(event.moment, HELD_WITHIN)
            self._hit(event, held)
            at = "any other moment" if held is None or event.moment is None else event.moment.value
            self._run.moments[at] += len(event.victims)
            self._tell(f"killed {', '.join(event.victims)} at: {at}", len(event.victims))

    def wait_for_business(self) -> None:
        """Return once another order has been placed, and another one charged."""
        acknowledged, charged = self._customers.acknowledged, self._charged()
        wait_until(
            lambda: self._customers.acknowledged > acknowledged and self._charged() > charged,
            BUSY_WITHIN,
            self._premises.check,
            f"no order was placed, or none charged: {acknowledged} and {charged}",
        )

    def _charged(self) -> int:
        return int(self._premises.query("SELECT count(*) FROM orders_charge")[0][0])

    def _hit(self, event: Event, held: int | None) -> None:
        for number, victim in enumerate(event.victims):
            self._kill(victim, held if number == 0 else None)
        self._watch.let_go()
        if "broker" not in event.victims:
            self._run.left_prepared += self._prepared()
        time.sleep(event.down)
        for victim in event.victims:
            if victim not in HAS_MOMENTS:  # those are started by their parents
                self._start(victim)

    def _prepared(self) -> int:
        with txbroker.connect(self._premises.broker.address, client="drill") as broker:
            return len(broker.transactions([txbroker.State.PREPARED]))

    def _kill(self, victim: str, held: int | None) -> None:
        premises = self._premises
        if victim == "broker":
            premises.broker.kill()
        elif victim == "postgresql":
            premises.postgresql.kill()
        elif victim in HAS_MOMENTS:
            self._kill_child(premises.celery if HAS_MOMENTS[victim] else premises.web, held)
        else:
            self._service(victim).kill()
        self._run.kills[victim] += 1

    def _kill_child(self, service: Service, held: int | None) -> None:
        """Kill the one that is held, or any."""
        pid = held if held is not None else self._chance.choice(service.children or [0])
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, victim: str) -> None:
        if victim == "broker":
            self._premises.broker.start()
        elif victim == "postgresql":
            self._premises.postgresql.start()
        else:
            self._service(victim).start()

    def _service(self, name: str) -> Service:
        return {program.name: program for program in self._premises.programs}[name]


def settle(premises: Premises) -> None:
    """Close the shop in order, without new orders: wait until all is done, leave nothing in doubt."""
    wait_until_quiet(premises)
    premises.celery.stop()
    premises.web.stop()
    premises.query(  # as if they had been dead for a minute: for so long resolvers take dead programs for slow ones
        "UPDATE txbroker_decision SET decided_at = decided_at - INTERVAL '61 seconds' WHERE xid <> 'identity' "
        "RETURNING xid"
    )
    premises.run(
        *(
            "-m",
            "txbroker",
            "resolve",
            "--database",
            premises.database_url,
            "--broker",
            premises.broker.address,
        )
    )


def wait_until_quiet(premises: Premises) -> None:
    """Return once all tasks are done and the queues are empty, or nothing has changed for a while."""
    seen: object = None
    since = time.monotonic()
    while time.monotonic() - since < QUIET_AFTER:
        premises.check()
        orders = int(premises.query("SELECT count(*) FROM orders_order")[0][0])
        done = [len(ordered(premises, table)) for table in TASKS.values()]
        waiting = sum(queues(premises).values()) if min(done) >= orders else None
        if waiting == 0:
            return
        if (orders, done, waiting) != seen:
            seen, since = (orders, done, waiting), time.monotonic()
        time.sleep(0.2)
