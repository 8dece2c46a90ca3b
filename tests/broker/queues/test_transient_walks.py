"""Test in random walks that a replay makes what a checkpoint would have had, with transient queues (decision 0068).

Seen to fail: with each part of a record or row about transient queues kept, one by one.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from crc32c import crc32c

from journal.check.verification import Level, verify
from journal.engine.engine import Engine
from journal.folds.table import client_folds
from journal.formats.frame_check import check_run
from journal.records.queue_entries import QUEUE_GROUP, Binding, ExchangeKind, QueueSettings
from journal.recovery.start import recover
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Totals
from journal.transactions.state import TransactionRow
from journal.xid import Xid
from tests.broker.queues.scene import (
    SELF_OR_NOWHERE,
    Scene,
    acknowledged,
    framed,
)
from tests.broker.queues.transient_scene import (
    flush,
    turns,
    xid,
)
from tests.support.broker_room import Room
from tests.support.builders import small_files
from txbroker.wire import messages


def facts_of(engine: Engine) -> list[tuple[str, list[Any]]]:
    """All that a checkpoint would have of each fold, and the ends of the logs that it would have."""
    rows = [(fold.name, [repr(row) for row in fold.snapshot()]) for fold in engine.folds]
    logs = [(each.number, each.start_offset, each.end_offset) for each in engine.catalog.durable_stores()]
    return [*rows, ("logs", logs)]


def replayed(disk: MemoryFilesystem) -> Engine:
    """Return the engine of a start on what a kill has left, as it is before the start's own record."""
    settings = small_files(outcome_archive=True)
    return recover(disk, ManualClock(monotonic=1_000_000), settings, folds=client_folds())


NAMES = ("l1", "l2", "t1", "t2")


class Walk:
    """Random requests about durable and transient queues, with checkpoints, kills and restarts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.scene = Scene(Room(small_files(outcome_archive=True)))
        self.to = self.scene.exchange("e", ExchangeKind.FANOUT)
        self.serial = 0
        self.prepared: list[Xid] = []
        self.delivered: dict[str, list[int]] = {}
        self.committed = 0
        """Transactions that were committed in one phase."""

    def step(self) -> None:
        kind = self.random.choice(
            ("declare", "declare", "publish", "publish", "take", "take", "settle", "prepare", "prepare", "decide",
             "decide", "commit", "commit", "add", "delete", "checkpoint", "restart", "rebind", "flush")
        )  # fmt: skip
        getattr(self, kind)()

    def settings(self, name: str) -> QueueSettings:
        other = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
        return QueueSettings(1, "", other, durable=name.startswith("l"), max_priority=int(name == "t2"))

    def number(self, name: str) -> int:
        found = self.scene.room.broker.queues.declarations.known_queue(name)
        return 0 if found is None else found.partition

    def declare(self) -> None:
        name = self.random.choice(NAMES)
        self.scene.peer.ask(messages.DeclareQueue, name, self.settings(name))

    def rebind(self) -> None:
        kind = self.random.choice((messages.Bind, messages.Unbind))
        self.scene.peer.ask(kind, Binding("e", "", self.random.choice(NAMES)))

    def target(self) -> tuple[int, bytes]:
        count = self.random.randint(1, 3)
        if self.random.random() < 0.5:
            return self.to - 1, framed("", *[b"x"] * count)  # address of those that need no queue
        name = self.random.choice(NAMES)
        return SELF_OR_NOWHERE, framed(name, *[b"y"] * count)

    def publish(self) -> None:
        to, data = self.target()
        self.scene.peer.ask(messages.Send, to, data=data)

    def take(self) -> None:
        name = self.random.choice(NAMES)
        if number := self.number(name):
            answer = self.scene.peer.ask(messages.TakeMessages, number, self.random.randint(1, 3))
            if isinstance(answer, messages.Taken) and answer.partition == number:
                found = [offset for first, count in answer.runs for offset in range(first, first + count)]
                self.delivered.setdefault(name, []).extend(found)

    def some(self) -> tuple[str, list[int]]:
        name = self.random.choice(NAMES)
        has = self.delivered.get(name, [])
        most = self.random.randint(1, 3)
        self.delivered[name] = has[most:]
        return name, has[:most]

    def settle(self) -> None:
        name, offsets = self.some()
        if offsets and (number := self.number(name)):
            if self.random.random() < 0.4:
                self.scene.give_up(number, *offsets, dead=self.random.random() < 0.5)
            else:
                self.scene.acknowledge(number, *offsets)
            turns(self.scene)

    def contents(self) -> dict[str, Any]:
        runs, data, positions = [], b"", []
        for _ in range(self.random.randint(0, 2)):
            to, more = self.target()
            runs.append((to, len(more)))
            data += more
        for _ in range(self.random.randint(0, 2)):
            name, offsets = self.some()
            if offsets and (number := self.number(name)):
                positions += acknowledged(number, *offsets)
        return {"runs": runs, "data": data, "positions": positions}

    def prepare(self) -> None:
        self.serial += 1
        name = xid(f"{self.serial}")
        contents = self.contents()
        answer = self.scene.peer.ask(messages.Prepare, self.serial, name, Totals(0, 0, 0), **contents)
        if isinstance(answer, messages.Done):
            self.prepared.append(name)

    def decide(self) -> None:
        if self.prepared:
            kind = self.random.choice((messages.Commit, messages.Rollback))
            answer = self.scene.peer.ask(kind, xid=self.prepared.pop(0))
            assert isinstance(answer, messages.Committed | messages.Done), answer
            turns(self.scene)

    def commit(self) -> None:
        self.serial += 1
        contents = self.contents()
        self.count(
            self.scene.peer.ask(messages.Commit, serial=self.serial, totals=Totals(0, 0, 0), **contents)
        )

    def add(self) -> None:
        """Send some of a transaction before the request that prepares or commits it."""
        self.serial += 1
        contents = self.contents()
        to, data = self.target()
        self.scene.peer.tell(messages.Add, self.serial, to, data=data)
        for positions in contents.pop("positions"):
            self.scene.peer.tell(messages.AddOffsets, self.serial, QUEUE_GROUP, [], settled=positions.settled)
            contents.setdefault("requests", 0)
            contents["requests"] += 1
        said = Totals(check_run(data), 1 + contents.pop("requests", 0), crc32c(data))
        if self.random.random() < 0.5:
            answer = self.scene.peer.ask(messages.Commit, serial=self.serial, totals=said, **contents)
            self.count(answer)
        else:
            name = xid(f"{self.serial}")
            answer = self.scene.peer.ask(messages.Prepare, self.serial, name, said, **contents)
            if isinstance(answer, messages.Done):
                self.prepared.append(name)
        if isinstance(answer, messages.Refused):
            self.scene.peer.ask(messages.Rollback, serial=self.serial)

    def count(self, answer: Any) -> None:
        self.committed += isinstance(answer, messages.Committed)

    def flush(self) -> None:
        flush(self.scene)

    def delete(self) -> None:
        name = self.random.choice(NAMES)
        if number := self.number(name):
            self.scene.peer.ask(messages.DeleteQueue, name, number)
            self.delivered.pop(name, None)

    def checkpoint(self) -> None:
        self.scene.room.engine.housekeeping.checkpoint_inline()

    def restart(self) -> None:
        if self.random.random() < 0.3:
            self.check()
            self.scene.room.filesystem = self.scene.room.filesystem.kill_clone()
            self.scene.room.start()
            self.scene.peer = self.scene.room.peer()
            self.serial = 0
            self.delivered.clear()
            assert not [name for name in NAMES[2:] if self.number(name)]

    def check(self) -> None:
        """Compare what a checkpoint would have now with what a replay makes."""
        engine = self.scene.room.engine
        engine.sync()
        disk = self.scene.room.filesystem.kill_clone()
        again = replayed(disk)
        again.sync()
        for (name, wanted), (_, found) in zip(facts_of(engine), facts_of(again), strict=True):
            if name not in (
                "catalog",
                "starts",
                "transactions",
            ):  # these have the new start, and what it ended
                assert found == wanted, name
        prepared = {str(each.xid): each for each in engine.transactions.prepared.values()}
        kept = {str(each.xid): each for each in again.transactions.prepared.values()}
        assert kept.keys() == prepared.keys()
        for name, each in kept.items():
            row, was = TransactionRow.of(each), TransactionRow.of(prepared[name])
            assert (row.entries, row.checksums, row.totals, row.settled) == (
                was.entries, was.checksums, was.totals, was.settled
            )  # fmt: skip
        outcomes = engine.transactions.outcomes.by_number
        for number, outcome in again.transactions.outcomes.by_number.items():
            if number in outcomes:
                assert outcome.placements == outcomes[number].placements
        again.close()
        assert [str(each) for each in verify(disk, Level.DEEP) if not each.harmless] == []


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(40))
def test_a_replay_makes_what_a_checkpoint_would_have_had(seed: int):
    walk = Walk(seed)
    for _ in range(60):
        walk.step()
    walk.check()


def test_walks_commit_in_one_phase_too():
    walk = Walk(7)
    for _ in range(300):
        walk.step()
    assert walk.committed > 10


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1_000, 11_000, 1_000))
def test_thousands_of_replays_do(first: int):
    for seed in range(first, first + 1_000):
        walk = Walk(seed)
        for _ in range(60):
            walk.step()
        walk.check()
