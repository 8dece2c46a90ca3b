"""Test that the logs of queues are compacted: what is not acknowledged stays, wherever it lies, and the rest goes.

Each guard was taken out, and a test seen to fail: the proof of the old file, the wait for the end of a checkpoint,
the look whether a file of that name is left from before.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from journal.check import Level, verify
from journal.engine import compactor
from journal.engine.compactor import CompactSegment
from journal.engine.housekeeping import Phase
from journal.formats.frame import GAP, HEADER, decode_run, walk
from journal.testing.faults import Fault, Operation
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.compacting import Compacting, value
from tests.broker.queues.scene import SELF, acknowledged, framed
from tests.queues.queue_room import TinyJournal
from tests.queues.test_queue_crashes import CrashRoom
from tests.support.broker_room import Peer, Room
from txbroker.wire import messages
from txbroker.wire.messages import MAX_TAKEN

XID = Xid(1, b"order 7", b"")


@pytest.fixture
def scene() -> Compacting:
    return Compacting()


def test_what_is_not_acknowledged_stays_and_the_rest_goes(scene):
    scene.fill(200)
    before = scene.store.total_bytes
    scene.acknowledge_but(5, 50, 51, 120)
    scene.compact()
    assert scene.room.engine.housekeeping.compactor.compacted == 7
    assert scene.store.total_bytes < before / 5
    assert [each.epoch for each in scene.store.segments] == [1] * 7 + [0]
    assert scene.all() == [value(n) for n in (5, 50, 51, 120)]
    for _ in range(3):
        scene.publish("q", b"more")
        scene.checkpoint()
        scene.check_sound()
    scene.restart()
    assert scene.all()[:4] == [value(n) for n in (5, 50, 51, 120)]
    assert len(scene.files()) == len(scene.store.segments), "the old files are gone"
    assert scene.store.is_compacted


def test_old_files_go_though_nothing_else_happens():
    journal = TinyJournal(file_bytes=1 << 20, checkpoint_interval=10_000_000, checkpoint_bytes=1 << 30)
    scene = Compacting(Room(journal))
    scene.fill(200)
    scene.acknowledge_but(5, 50, 51, 120)
    scene.checkpoint()
    scene.compact()
    assert len(scene.files()) > len(scene.store.segments)
    for _ in range(20):
        scene.room.clock.advance(1_000_000)
        scene.room.engine.housekeeping.run_inline()
        scene.room.engine.sync()
    scene.room.engine.housekeeping.run_inline()
    assert len(scene.files()) == len(scene.store.segments)
    assert scene.all() == [value(n) for n in (5, 50, 51, 120)]
    scene.check_sound()


def test_a_segment_is_compacted_again_when_half_of_what_is_left_is_acknowledged_too(scene):
    scene.fill(60)
    kept = list(range(0, 26, 3))
    scene.acknowledge_but(*kept)
    scene.compact()
    first = scene.store.segments[0]
    assert (first.epoch, first.removed) == (1, 26 - len(kept))
    scene.acknowledge_but(*kept[2:])
    scene.compact()
    assert scene.store.segments[0].epoch == 1, "7 of 9 are still wanted"
    scene.acknowledge_but(*kept[5:])
    scene.compact()
    assert scene.store.segments[0].epoch == 2
    assert scene.all() == [value(n) for n in kept[5:]]
    scene.checkpoint()
    scene.check_sound()


def test_nothing_is_compacted_of_which_more_than_half_is_wanted_or_that_is_no_queues(scene):
    [partition] = scene.room.topic()
    scene.fill(60)
    for _ in range(60):
        scene.peer.send(partition, value(1))
    scene.acknowledge_but(*range(0, 26, 2), *range(14, 60))
    scene.compact()
    assert scene.room.engine.housekeeping.compactor.compacted == 0


def test_what_a_prepared_transaction_acknowledges_stays_until_it_has_ended(scene):
    scene.fill(60)
    scene.acknowledge_but(7, 8)
    scene.take(scene.number)
    prepared = scene.peer.ask(
        messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(scene.number, 7)
    )
    assert isinstance(prepared, messages.Done)
    scene.compact()
    scene.checkpoint()
    scene.restart()
    assert scene.store.segments[0].removed == 24
    assert scene.all() == [value(8)]
    assert isinstance(scene.peer.ask(messages.Rollback, xid=XID), messages.Done)
    scene.room.timers.advance(1)
    assert scene.all() == [value(7)]


def test_a_repeated_send_is_not_compared_with_what_a_compaction_removed(scene):
    producer = scene.other.ask(messages.OpenProducer, "p")
    fields = {"producer_id": producer.producer_id, "epoch": producer.epoch, "sequence": 0}
    sent = scene.other.ask(messages.Send, SELF, data=framed("q", value(0)), **fields)
    assert isinstance(sent, messages.Sent), sent
    scene.sent = 1
    scene.fill(59)
    scene.acknowledge_but(59)
    scene.compact()
    assert scene.store.segments[0].removed == 26
    again = scene.other.ask(messages.Send, SELF, data=framed("q", value(0)), **fields)
    assert isinstance(again, messages.Sent), again


def test_a_damaged_segment_stays_as_it_is(scene):
    scene.fill(60)
    scene.acknowledge_but(3)
    first = scene.store.segments[0]
    scene.room.filesystem.open(first.path).write_some(first.size - 20, [b"#"])
    scene.compact()
    assert scene.store.segments[0] == first
    assert scene.room.engine.housekeeping.compactor.compacted == 1
    scene.compact()
    assert not scene.room.filesystem.exists(first.path.replace(".log", "-1.log"))
    assert scene.all() == [value(3)]


def test_a_deleted_queue_is_not_compacted_to_the_end(scene):
    scene.fill(60)
    scene.acknowledge_but(3)
    housekeeping = scene.room.engine.housekeeping
    housekeeping.compactor.look()
    run(scene, lambda: False, most=1)
    assert isinstance(scene.peer.ask(messages.DeleteQueue, "q", scene.number), messages.Counted)
    housekeeping.run_inline()
    assert housekeeping.compactor.compacted == 0
    for _ in range(3):
        scene.queue("other")
        scene.publish("other", b"x")
        scene.checkpoint()
    assert len(scene.room.filesystem.list_directory("partitions")) == 1
    scene.check_sound()


def test_a_segment_that_is_removed_meanwhile_takes_its_new_file_with_it(scene):
    scene.fill(60)
    scene.acknowledge_but(3)
    scene.room.engine.housekeeping.compactor.look()
    run(scene, lambda: False, most=1)
    scene.taken(scene.number)
    scene.acknowledge(scene.number, 3)
    scene.room.broker.queues.retain()
    scene.room.engine.sync()
    scene.compact()
    for _ in range(3):
        scene.publish("q", b"x")
        scene.checkpoint()
    scene.check_sound()
    assert len(scene.files()) == 1


def run(scene: Compacting, until: Callable[[], bool], most: int = 1000) -> None:
    """Run steps of compactions, and nothing else, as long as there are some."""
    engine = scene.room.engine
    while most and not until():
        steps = [job for job in engine.jobs(engine.now()) if isinstance(job, CompactSegment)]
        if not steps:
            return
        for job in steps:
            job.run()
            engine.finish(job)
            most -= 1


def test_a_checkpoint_does_not_have_what_its_folds_may_still_need(scene):
    """Messages are acknowledged after the folds were copied, and not forced when the checkpoint is written."""
    scene.fill(60)
    scene.publish("q", value(60))
    engine, housekeeping = scene.room.engine, scene.room.engine.housekeeping
    scene.take(scene.number, MAX_TAKEN, max_bytes=1 << 30)
    housekeeping.request_checkpoint()
    flushes = engine.jobs(engine.now())
    assert housekeeping.phase is Phase.FLUSHING
    settled = acknowledged(scene.number, *range(25), *range(26, 52))[0].settled
    scene.peer.tell(messages.CommitOffsets, "txbroker.queues", [], settled=settled)
    housekeeping.compactor.look()
    run(scene, lambda: False)
    for job in flushes:
        job.run()
        engine.finish(job)
    while housekeeping.phase is not Phase.NONE:
        for job in engine.jobs(engine.now()):
            job.run()
            engine.finish(job)
    scene.room.filesystem = scene.room.filesystem.kill_clone()
    scene.room.start()
    scene.peer = scene.room.peer()
    assert scene.all() == [value(n) for n in range(61)]


def test_files_that_a_crash_has_left_are_not_taken_for_new_ones(scene):
    scene.fill(60)
    scene.acknowledge_but(3)
    scene.checkpoint()
    scene.room.engine.housekeeping.compactor.look()
    scene.room.engine.housekeeping.run_inline()
    scene.room.filesystem = scene.room.filesystem.kill_clone()  # no checkpoint has the new files
    scene.room.start()
    scene.peer = scene.room.peer()
    assert [each.epoch for each in scene.store.segments[:2]] == [0, 0]
    scene.compact()
    assert [each.epoch for each in scene.store.segments[:2]] == [2, 2]
    for _ in range(3):
        scene.publish("q", b"x")
        scene.checkpoint()
        scene.check_sound()
    assert scene.all()[0] == value(3)
    assert len(scene.files()) == len(scene.store.segments)


def test_a_pin_lets_no_compaction_begin(scene):
    scene.fill(60)
    scene.acknowledge_but(3)
    pin = scene.room.engine.housekeeping.pin()
    scene.compact()
    assert scene.room.engine.housekeeping.compactor.compacted == 0
    scene.room.engine.housekeeping.unpin(pin)
    scene.compact()
    assert scene.room.engine.housekeeping.compactor.compacted == 2


def test_a_search_and_a_fetch_pass_over_gaps(scene):
    scene.fill(60)
    scene.acknowledge_but(3, 30)
    scene.compact()
    assert scene.room.engine.housekeeping.compactor.compacted == 2
    data = b""
    offset = 0
    while offset < 52:
        plan = scene.store.plan_read(offset, 1 << 20)
        frames = plan.run()
        data += frames.data
        offset = frames.end
    assert any(HEADER.unpack_from(data, at)[6] & GAP for at, *_ in walk(data))
    assert [each.offset for each in decode_run(data)] == [3, 30]
    fetched = scene.peer.ask(messages.Fetch, [(scene.number, 0, 1 << 62)], 1 << 20)
    assert isinstance(fetched, messages.Fetched), fetched
    assert [each[-5:] for each in values_of_fetch(scene.peer, fetched)] == [value(3)[-5:]]


def values_of_fetch(peer: Peer, answer: Any) -> list[bytes]:
    data = peer.data[peer.answers.index(answer)]
    return [each.value or b"" for each in decode_run(data)]


def test_checkpoints_are_made_for_the_removal_of_much_though_nothing_else_happens(scene, monkeypatch):
    monkeypatch.setattr(compactor, "MUCH", 2 * 4000)
    scene.fill(60)
    scene.acknowledge_but(3)
    before, lsns = scene.room.engine.last_lsn, []
    for _ in range(6):
        scene.compact()
        scene.room.engine.sync()
        lsns.append(scene.room.engine.last_lsn)
    assert len(scene.files()) == 3
    assert before < lsns[-1] <= before + 2
    assert lsns[-3] == lsns[-1], "and no more than that"
    scene.check_sound()


def test_a_start_measures_what_lies_beside_gaps():
    scene = Compacting(max_length_bytes=100_000)
    scene.fill(60)
    scene.acknowledge_but(0, 3, 30)
    scene.compact()
    scene.checkpoint()
    scene.restart()
    assert scene.room.engine.housekeeping.compactor.compacted == 0
    assert scene.store.is_compacted
    for _ in range(5):
        scene.publish("q", b"")
        for passes in scene.room.broker.passes:
            passes.wake()
        scene.room.timers.advance(1)
        scene.room.engine.sync()
    assert scene.info().ready_bytes == 3 * len(value(0))


def test_segments_are_looked_at_a_few_at_a_time(scene, monkeypatch):
    monkeypatch.setattr(compactor, "LOOKED_AT_ONCE", 2)
    scene.fill(200)
    scene.acknowledge_but(5, 50, 51, 120)
    housekeeping = scene.room.engine.housekeeping
    housekeeping.compactor.look()
    for _ in range(10):
        housekeeping.compactor.look()
        housekeeping.run_inline()
    assert housekeeping.compactor.compacted == 7


def test_none_begins_without_room_beyond_what_finishing_needs(scene):
    scene.fill(60)
    scene.acknowledge_but(3)
    housekeeping, filesystem = scene.room.engine.housekeeping, scene.room.filesystem
    usual, filesystem.free = filesystem.free, housekeeping.reserve_bytes + scene.store.segments[0].size - 1
    scene.compact()
    assert housekeeping.compactor.compacted == 0
    filesystem.free = usual
    scene.compact()
    assert housekeeping.compactor.compacted == 2


def test_what_one_may_still_write_is_no_room_for_new_work(scene):
    scene.fill(60)
    scene.acknowledge_but(3)
    engine, filesystem = scene.room.engine, scene.room.filesystem
    housekeeping = engine.housekeeping
    filesystem.free = housekeeping.reserve_bytes + scene.store.segments[0].size
    housekeeping.compactor.look()
    run(scene, lambda: False, most=1)
    housekeeping.watch_space()
    assert not housekeeping.reserve_space(3)
    while housekeeping.compactor.compacted == 0:
        housekeeping.run_inline()
    housekeeping.watch_space()
    assert housekeeping.reserve_space(3)


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.WRITE, Operation.FORCE])
def test_a_disk_that_is_full_in_the_middle_stops_one_until_the_next_look(operation):
    room = CrashRoom()
    scene = Compacting(room)
    scene.fill(60)
    scene.acknowledge_but(3)
    room.plan.faults.append(Fault(operation, path="*-1.log", error=errno.ENOSPC, times=2))
    scene.compact()
    assert room.engine.housekeeping.compactor.compacted == 0
    assert scene.files() == [".log", "26.log", "52.log"]
    room.plan.faults.clear()
    scene.compact()
    assert room.engine.housekeeping.compactor.compacted == 2
    assert scene.all()[0] == value(3)


def test_a_checkpoint_may_have_a_start_that_was_moved_behind_its_folds(scene):
    """A kill leaves that, and it is no fault: what was acknowledged is in the journal above it."""
    scene.fill(60)
    scene.publish("q", value(60))
    engine, housekeeping = scene.room.engine, scene.room.engine.housekeeping
    scene.take(scene.number, MAX_TAKEN, max_bytes=1 << 30)
    housekeeping.request_checkpoint()
    jobs = engine.jobs(engine.now())
    assert housekeeping.phase is Phase.FLUSHING
    scene.acknowledge(scene.number, *range(60))
    assert scene.room.broker.queues.retain() == 1
    engine.sync()
    while housekeeping.phase is not Phase.NONE:
        for job in jobs:
            job.run()
            engine.finish(job)
        jobs = engine.jobs(engine.now())
    scene.check_sound()


def test_verification_finds_the_append_time_of_messages_behind_a_gap():
    """A power cut brings a file of the journal back that was removed, of a start whose clock nothing tells any more."""
    scene = Compacting(Room(TinyJournal(file_bytes=64 << 10, low_water_bytes=0)))
    scene.queue("other")
    [first] = [name for name in scene.room.filesystem.list_directory("journal") if name.endswith(".journal")]
    for _ in range(80):
        scene.publish("other", b"x" * 1000)
    for _ in range(2):
        scene.checkpoint()
        scene.publish("other", b"x")
    scene.publish("q", *[value(n) for n in range(20)])
    scene.sent = 20
    scene.fill(40)
    scene.acknowledge_but(3)
    scene.compact()
    scene.checkpoint()
    scene.restart()
    for _ in range(3):
        scene.publish("q", b"x")
        scene.checkpoint()
    disk = scene.room.filesystem.crash_clone(0, 0.0)
    files = sorted(name for name in disk.list_directory("journal") if name.endswith(".journal"))
    assert len(files) > 1
    assert files[0] != first
    assert [str(each) for each in verify(disk, Level.DEEP) if not each.harmless] == []
