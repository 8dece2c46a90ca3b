"""Tests of the crash windows of queues (decision 0055): the power goes at every operation on the disk, and no message
is lost, comes twice, or is in some of its queues.

Seen to fail: with ``Published`` applied to the first queue alone in a replay (lost), with holds that a start does not
make again (twice), with ``LogStartMoved`` above the position (lost), with a repetition that is routed anew (twice).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from journal.check.verification import Level, verify
from journal.engine.settings import JournalSettings
from journal.folds.table import client_folds
from journal.records.queue_entries import ExchangeKind
from journal.records.record import TopicAltered
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import (
    FaultFilesystem,
    FaultPlan,
    ManualClock,
    MemoryFilesystem,
    PowerCut,
    cut_power_at,
)
from journal.xid import Xid
from tests.broker.queues.scene import Scene, acknowledged, framed, values_of
from tests.support.broker_room import Room
from tests.support.builders import small_files
from txbroker.wire import messages

SMALL = TopicSettings(segment_bytes=64 << 10, force_messages=4)
BIG = b"x" * 20_000


class CrashRoom(Room):
    """A broker on a disk whose power can be cut at an operation."""

    def __init__(self, inner: MemoryFilesystem | None = None, clock: ManualClock | None = None) -> None:
        self.inner = inner if inner is not None else MemoryFilesystem()
        self.plan = FaultPlan()
        self._given = clock
        super().__init__(small_files())

    def start(self) -> None:
        self.filesystem = FaultFilesystem(self.inner, self.plan)  # type: ignore[assignment]
        if self._given is not None:
            self.clock, self._given = self._given, None
        settings: JournalSettings = self.journal
        self.engine = recover(self.filesystem, self.clock, settings, folds=client_folds())
        self.engine.on_flush_wanted = lambda: None
        self.broker = self.made_broker()
        self.engine.sync()

    def checkpoint(self) -> None:
        self.engine.sync()
        self.engine.housekeeping.checkpoint_inline()


class Script:
    """A program with queues. ``told`` are values that are in each of the two queues, by what was answered; ``over``
    those of which an acknowledgement was answered, by queue.
    """

    ready = False
    """Whether all is declared."""

    def __init__(self, room: CrashRoom) -> None:
        self.pairs: dict[bytes, tuple[bytes, bytes]] = {}
        """Of each transaction the message that it acknowledges, and the one that it publishes."""
        self.ended: set[bytes] = set()
        self.numbers: dict[str, int] = {}
        self.scene = Scene(room)
        self.room = room
        self.tried: set[bytes] = set()
        self.told: set[bytes] = set()
        self.over: dict[str, set[bytes]] = {"a": set(), "b": set()}
        self.doubtful: dict[str, set[bytes]] = {"a": set(), "b": set()}
        self.dead: set[bytes] = set()
        self.decided: dict[bytes, bool] = {}
        """How prepared transactions are to end."""

    def publish(self, *values: bytes) -> None:
        self.tried.update(values)
        answer = self.scene.publish("k", *values, to=self.both)
        assert isinstance(answer, messages.Sent), answer
        self.told.update(values)

    def acknowledge(self, queue: str, count: int) -> None:
        number = self.numbers[queue]
        taken = self.scene.take(number, count)
        values = values_of(taken, self.scene.peer)
        offsets = [offset for first, some in taken.runs for offset in range(first, first + some)]
        self.doubtful[queue].update(values)
        assert isinstance(self.scene.acknowledge(number, *offsets), messages.Done)
        self.over[queue].update(values)

    def transact(self, name: bytes, serial: int, value: bytes, prepare: bool, commit: bool) -> None:
        """Acknowledge a message of queue a and publish another, in one transaction."""
        number, peer = self.numbers["a"], self.scene.peer
        taken = self.scene.take(number, 1)
        [old] = values_of(taken, peer)
        [(offset, _)] = taken.runs
        data = framed("k", value)
        self.tried.add(value)
        contents: dict[str, Any] = {
            "runs": [(self.both, len(data))], "positions": acknowledged(number, offset), "data": data,
        }  # fmt: skip
        self.decided[name] = commit
        self.pairs[name] = (old, value)
        if not prepare:
            answer = peer.ask(messages.Commit, serial=serial, **contents)
            assert isinstance(answer, messages.Committed), answer
        else:
            xid = Xid(1, name, b"")
            ready = peer.ask(messages.Prepare, serial, xid, None, **contents)
            assert isinstance(ready, messages.Done), ready
            self.room.checkpoint()
            decision = messages.Commit if commit else messages.Rollback
            ended = peer.ask(decision, xid=xid)
            assert isinstance(ended, (messages.Committed, messages.Done)), ended
        if commit:
            self.told.add(value)
            self.over["a"].add(old)
        self.ended.add(name)

    def run(self) -> None:
        scene, room = self.scene, self.room
        self.numbers = {
            "a": scene.queue("a"),
            "b": scene.queue("b", dead_letter_exchange="", dead_letter_key="dead"),
        }
        scene.queue("dead")
        for number in self.numbers.values():
            topic = room.engine.catalog.stores[number].topic
            room.engine.accept(TopicAltered(topic, SMALL, room.engine.now()))
        self.both = scene.exchange("x", ExchangeKind.FANOUT)
        scene.bind("x", "", "a")
        scene.bind("x", "", "b")
        self.ready = True
        self.publish(b"1", b"2", b"3")
        self.publish(b"4" + BIG)
        self.acknowledge("a", 2)
        room.checkpoint()
        self.transact(b"one phase", 1, b"5", prepare=False, commit=True)
        self.transact(b"committed", 2, b"6", prepare=True, commit=True)
        self.transact(b"rolled back", 3, b"7", prepare=True, commit=False)
        self.tried.add(b"dead")
        taken = scene.take(self.numbers["b"], 1)
        assert taken.runs == [(0, 1)]
        self.dead.add(b"1")
        scene.give_up(self.numbers["b"], 0, dead=True)
        room.flush()
        for number in range(8, 20):
            self.publish(b"%d" % number + BIG)
            if number % 3 == 0:
                self.acknowledge("a", 2)
                room.flush()
                room.broker.queues.retain()
                room.engine.sync()
        room.checkpoint()
        self.publish(b"20")
        room.checkpoint()
        room.broker.queues.retain()
        room.engine.sync()
        room.checkpoint()


def judge(script: Script, disk: MemoryFilesystem) -> None:
    """Start on what is left, end what is prepared as it was to end, take all, and compare."""
    room = CrashRoom(disk, script.room.clock)
    scene = Scene(room)
    room.broker.dead_letters.try_again()  # as the service does each second
    room.engine.sync()
    for transaction in list(room.engine.transactions.prepared.values()):
        xid = transaction.xid
        assert xid is not None
        decision = messages.Commit if script.decided[xid.global_id] else messages.Rollback
        assert isinstance(scene.peer.ask(decision, xid=xid), (messages.Committed, messages.Done))
    if not script.ready:
        return
    found: dict[str, Counter[bytes]] = {}
    for name, number in script.numbers.items():
        got = Counter[bytes]()
        while some := scene.taken(number, 100, max_bytes=1 << 30):
            got.update(some)
        found[name] = got
        assert max(got.values(), default=1) == 1, f"twice in {name}: {got}"
    [dead] = [each.partition for each in scene.peer.ask(messages.ListQueues, ["dead"]).queues]
    letters = set(scene.taken(dead))
    for name, got in found.items():
        gone = script.over[name] | script.doubtful[name] | {old for old, _ in script.pairs.values()}
        if name == "b":
            gone = script.over["b"] | script.doubtful["b"] | script.dead
        missing = script.told - set(got) - gone
        assert not missing, f"lost from {name}: {missing}"
        assert not set(got) & script.over[name], f"acknowledged, and there again in {name}"
        assert set(got) <= script.tried
    for value in script.tried - script.told:
        places = [value in found["a"] or value in script.over["a"], value in found["b"]]
        assert places[0] == places[1], f"{value[:20]!r} is in some of its queues: {places}"
    for name, (old, new) in script.pairs.items():
        is_done = new in found["b"]
        if is_done:
            assert old not in found["a"], f"{name!r} is half done"
        else:
            assert old in found["a"] or old in script.over["a"] | script.doubtful["a"], f"{name!r}: lost"
        if name in script.ended:
            assert is_done == script.decided[name]
    assert letters <= script.dead
    for value in script.dead:
        assert (value in letters) != (value in found["b"]), "a dead letter is in one place"
    room.checkpoint()
    room.engine.close()
    assert [str(each) for each in verify(disk, Level.DEEP) if not each.harmless] == []


def operations() -> int:
    count = 0

    def hook(kind: object, path: str) -> None:
        nonlocal count
        count += 1

    room = CrashRoom()
    room.plan.on_operation = hook
    Script(room).run()
    return count


TOTAL = operations()


def cut_at(number: int) -> Script:
    room = CrashRoom()
    script = Script(room)
    room.plan.on_operation = cut_power_at(number)
    with pytest.raises(PowerCut):
        script.run()
    return script


def test_without_a_crash_all_is_there() -> None:
    script = Script(CrashRoom())
    script.run()
    judge(script, script.room.inner.kill_clone())


@pytest.mark.sampled(10, test=60)
@pytest.mark.parametrize("number", range(1, TOTAL + 1))
def test_a_power_cut_at_any_operation(number: int) -> None:
    script = cut_at(number)
    judge(script, script.room.inner.kill_clone())
    for seed in range(2):
        judge(script, script.room.inner.crash_clone(seed))
