"""A program and a resolver that take one step at a time, on a real database and a real broker.

The program's steps are those of ``docs/atomic.md``; after any of them it may die (its connections end). A
resolver's steps are those of one pass. :func:`schedules` gives every order of both.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import txbroker
from txbroker import State
from txbroker.databases.adapters.adapter import adapt, run
from txbroker.databases.adapters.database import ROLLED_BACK, TABLE, texts
from txbroker.databases.blocking import BlockingSide
from txbroker.databases.protocol import Deciding
from txbroker.databases.resolver import Resolver, Told
from txbroker.databases.tables import xids
from txbroker.databases.tables.decision_table import WAITING

PROGRAM = ("begin", "decide", "prepare", "commit", "tell")
RESOLVER = ("list", "decide", "tell", "remove", "rows", "sweep")


class Program:
    """One block by hand: a row and a message with the same number."""

    def __init__(self, connection: Any, broker: txbroker.Connection, topic: str, number: int) -> None:
        self.connection = connection
        self.database = adapt(self.connection)
        self.side = BlockingSide(broker, True, 10.0)
        self.deciding = Deciding(self.database, self.side)
        self.topic, self.number = topic, number
        self.failed = False

    def step(self, name: str) -> None:
        """Take a step; after a failed one the program gives up, as a block does."""
        if self.failed:
            return
        try:
            getattr(self, f"_{name}")()
        except Exception as error:  # noqa: BLE001 - the database or the broker says no: that ends the block
            self.failed = True
            run(self.deciding._abandon(error))

    def _begin(self) -> None:
        run(self.deciding.enter())
        run(self.database.execute("INSERT INTO numbers VALUES (%s)", (self.number,)))
        self.side.transaction.send(self.topic, b"%d" % self.number)

    def _decide(self) -> None:
        deciding = self.deciding
        key = xids.row_key(deciding.xid)
        run(self.database.decide(deciding._token, key, self.side.identity))

    def _prepare(self) -> None:
        run(self.side.prepare())

    def _commit(self) -> None:
        run(self.database.commit())

    def _tell(self) -> None:
        self.side.connection.run(self.side.transaction._core.commit())

    def end(self) -> None:
        """It goes on with something else."""
        self.deciding._unregister()
        run(self.database.rollback())

    def die(self) -> None:
        """The process is gone: the database rolls back what is open, the broker what is not prepared."""
        self.failed = True
        self.deciding._unregister()
        self.connection.close()
        self.connection = None
        if self.side.transaction is not None and self.side.transaction.stage.value == "open":
            self.side.connection.run(self.side.transaction._core.rollback())


class Steps:
    """One pass of a resolver, step by step, looking at one transaction."""

    def __init__(self, resolver: Resolver, xid: Callable[[], object]) -> None:
        self.resolver = resolver
        self.xid = xid
        self.listed = False
        self.verdict = WAITING
        self.told = None
        self.rows: list[tuple[str, ...]] = []

    def step(self, name: str) -> None:
        getattr(self, f"_{name}")()

    def _list(self) -> None:
        self.listed = self.xid() in self.resolver.in_doubt()[0]

    def _decide(self) -> None:
        if self.listed:
            self.verdict = self.resolver.decide(self.xid())

    def _tell(self) -> None:
        if self.verdict != WAITING:
            self.told = self.resolver.tell(self.xid(), self.verdict)

    def _remove(self) -> None:
        if self.told is not None:
            assert self.told is not Told.CONTRADICTED
            self.resolver.remove([xids.row_key(self.xid())])

    def _rows(self) -> None:
        self.rows = all_rows(self.resolver)

    def _sweep(self) -> None:
        assert self.resolver.sweep_rows(self.rows)[1] == []


class LookingOnly(Steps):
    """What must not be: it looks for the row, and takes its absence for a "no"."""

    def _decide(self) -> None:
        if self.listed:
            self.verdict = self.resolver.table.read(xids.row_key(self.xid())) or ROLLED_BACK

    def _remove(self) -> None:
        """It has left no mark."""

    def _sweep(self) -> None:
        self.resolver.sweep_rows(self.rows)  # which finds the contradictions that it has made


class ListingFirst(Steps):
    """What must not be: it asks the broker first, then takes rows that were not prepared then for left over."""

    def _rows(self) -> None:
        self.prepared = set(self.resolver.in_doubt()[0])

    def _sweep(self) -> None:
        keys = [key for key, _ in all_rows(self.resolver)]
        known = {xids.row_key(xid) for xid in self.prepared}
        self.resolver.remove([key for key in keys if key not in known])


def all_rows(resolver: Resolver) -> list[tuple[str, ...]]:
    """All rows of decisions, whatever their age."""
    database = resolver.connection.database
    try:
        return texts(run(database.execute(f"SELECT xid, decision FROM {TABLE}")).rows)
    finally:
        resolver.connection.roll_back()


def schedules(steps: tuple[str, ...] = RESOLVER) -> Iterator[list[tuple[str, str]]]:
    """Every order of the program's steps and a resolver's; the program gets through, or dies after any step."""
    for done in range(len(PROGRAM) + 1):
        mine = [("program", name) for name in PROGRAM[:done]]
        if done < len(PROGRAM):
            mine.append(("program", "die"))
        theirs = [("resolver", name) for name in steps]
        total = len(mine) + len(theirs)
        for places in itertools.combinations(range(total), len(mine)):
            program, resolver = iter(mine), iter(theirs)
            yield [next(program) if place in places else next(resolver) for place in range(total)]


def settle(resolver: Resolver) -> None:
    """What comes later by itself: passes until nothing is in doubt, and no row is left."""
    deadline = time.monotonic() + 10.0
    while resolver.resolve().waiting:  # a server may need a moment to notice that a program is dead
        assert time.monotonic() < deadline
    resolver.sweep_rows(all_rows(resolver))


def outcome(broker: txbroker.Connection, xid: object) -> State:
    return broker.outcome(xid).state
