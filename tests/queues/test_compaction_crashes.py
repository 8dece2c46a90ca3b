"""Tests of the crash windows of compactions (decision 0065): the power goes at every operation on the disk, and no
message that was not acknowledged is lost, and none that was comes again.

Seen to fail: with the old file removed at once, and with the new one, or its name, not forced.
"""

from __future__ import annotations

from collections import Counter

import pytest

from journal.check.verification import Level, verify
from journal.records.record import TopicAltered
from journal.settings import TopicSettings
from journal.testing import MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import Scene, acknowledged, values_of
from tests.queues.test_queue_crashes import CrashRoom
from txbroker.wire import messages
from txbroker.wire.messages import MAX_TAKEN

SMALL = TopicSettings(segment_bytes=2048, force_messages=4)
XID = Xid(1, b"order 7", b"")
COUNT = 48


def value(number: int) -> bytes:
    return b"%02d" % number + b"." * 100


class Script:
    """A program that acknowledges what it takes out of order, while the broker compacts and makes checkpoints."""

    def __init__(self, room: CrashRoom) -> None:
        self.room, self.scene = room, Scene(room)
        self.told: set[bytes] = set()
        self.over: set[bytes] = set()
        self.doubtful: set[bytes] = set()
        self.number = 0

    def acknowledge(self, numbers: list[int]) -> None:
        values = {value(n) for n in numbers}
        self.doubtful |= values
        assert isinstance(self.scene.acknowledge(self.number, *numbers), messages.Done)
        self.over |= values

    def compact(self) -> None:
        self.room.engine.housekeeping.compactor.look()
        self.room.engine.housekeeping.run_inline()

    def run(self) -> None:
        scene, room = self.scene, self.room
        self.number = scene.queue()
        topic = room.engine.catalog.stores[self.number].topic
        room.engine.accept(TopicAltered(topic, SMALL, room.engine.now()))
        for number in range(COUNT):
            assert isinstance(scene.publish("q", value(number)), messages.Sent)
            self.told.add(value(number))
            if number % 8 == 7:
                room.flush()
        room.checkpoint()
        scene.take(self.number, MAX_TAKEN)
        wanted = {1, 2, 20, 21, 22, 23, 24, 40}
        self.acknowledge([n for n in range(COUNT) if n not in wanted])
        self.compact()
        positions = acknowledged(self.number, 2)
        self.doubtful.add(value(2))
        ready = scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=positions)
        assert isinstance(ready, messages.Done), ready
        room.checkpoint()
        self.acknowledge([21, 22, 23, 24])
        self.compact()
        room.checkpoint()
        assert isinstance(scene.peer.ask(messages.Commit, xid=XID), messages.Committed)
        self.over.add(value(2))
        scene.publish("q", b"last")
        self.told.add(b"last")
        room.checkpoint()
        assert room.engine.housekeeping.compactor.compacted >= 4


def judge(script: Script, disk: MemoryFilesystem) -> None:
    """Start on what is left, commit what is prepared, take all, and compare."""
    room = CrashRoom(disk, script.room.clock)
    scene = Scene(room)
    if room.engine.transactions.prepared:
        assert isinstance(scene.peer.ask(messages.Commit, xid=XID), messages.Committed)
    if not script.told:
        return
    got = Counter(values_of(scene.take(script.number, MAX_TAKEN), scene.peer))
    assert max(got.values(), default=1) == 1, f"twice: {got}"
    missing = script.told - set(got) - script.over - script.doubtful
    assert not missing, f"lost: {missing}"
    assert not set(got) & script.over, "acknowledged, and there again"
    for _ in range(2):
        room.engine.housekeeping.compactor.look()
        room.engine.housekeeping.run_inline()
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


def test_without_a_crash_all_is_there() -> None:
    script = Script(CrashRoom())
    script.run()
    judge(script, script.room.inner.kill_clone())


@pytest.mark.sampled(10, test=60)
@pytest.mark.parametrize("number", range(1, TOTAL + 1))
def test_a_power_cut_at_any_operation(number: int) -> None:
    room = CrashRoom()
    script = Script(room)
    room.plan.on_operation = cut_power_at(number)
    with pytest.raises(PowerCut):
        script.run()
    judge(script, room.inner.kill_clone())
    for seed in range(3):
        judge(script, room.inner.crash_clone(seed))
