"""Test journals, checkpoints and witnesses of an earlier moment than the logs: they are refused by name, and others are
not.

Seen to fail: with ``LogFiles.check`` not called a start deletes segments that hold acknowledged messages.
"""

import pytest

from journal.check import Level, verify
from journal.constants import KIB
from journal.errors import UnprovenLog
from journal.records.record import TopicDeleted
from journal.recovery.start import recover
from journal.repair import diagnose
from journal.testing import Fault, FaultFilesystem, FaultPlan, Operation
from tests.recovery.recovery_scene import refusal
from tests.repair.repair_checks import damages
from tests.repair.repair_scene import repaired
from tests.repair.test_repair_interrupted import cut_at, finish
from tests.support.engine_room import Room, contents, damage, decide

BIG = b"v" * (20 * KIB)
STATE = ("journal", "checkpoints", "staged", "witness")


def put_back(new, old, *names):
    """The disk ``new``, with some of its directories and files as they were in ``old``."""
    disk = new.kill_clone()
    for path in contents(disk):
        if path.split("/")[0] in names:
            disk.unlink(path)
    for path, data in contents(old).items():
        if path.split("/")[0] in names:
            file = disk.open(path, create=True)
            file.write_some(0, [data])
            file.force()
    for name in ("", *names):
        if name != "witness":
            disk.force_directory(name)
    return disk


def disk_of(room):
    """What lies there now, all of it durable."""
    return room.inner.kill_clone()


def two_moments(before=2, after=9, checkpoint=True):
    """Disks of one history: messages in segments, with a checkpoint or without; then more messages, flushed."""
    room = Room()
    room.topic(segment_bytes=64 * KIB)
    for number in range(before):
        room.send(BIG + b"%d" % number)
    room.flush()
    if checkpoint:
        room.checkpoint()
    room.send(b"in the journal alone")
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    old = disk_of(room)
    for number in range(after):
        room.send(BIG + b"after %d" % number)
    room.flush()
    return old, disk_of(room), room


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("after", [1, 9])
def test_logs_of_a_later_moment_are_refused_by_partition_and_offsets_and_nothing_is_changed(
    before, after, checkpoint
):
    old, new, _ = two_moments(before, after, checkpoint)
    disk = put_back(new, old, *STATE)
    error = refusal(disk, UnprovenLog)
    assert error.path.startswith("partitions/t-0.1/")
    assert error.first_offset == before + 1
    assert error.first_offset <= error.last_offset <= before + after
    for said in (
        f"offset{'s' if error.last_offset > error.first_offset else ''} {before + 1}",
        f"up to offset {before}",
    ):
        assert said in str(error)
    for said in ("no message was changed", "from one copy", "txbroker repair DIR", "txbroker verify DIR"):
        assert said in str(error)


@pytest.mark.parametrize("level", list(Level))
def test_a_verification_says_the_same_of_each_file(level):
    old, new, _ = two_moments()
    disk = put_back(new, old, *STATE)
    error = refusal(disk, UnprovenLog)
    found = [finding for finding in verify(disk, level) if not finding.harmless]
    assert all(finding.unproven for finding in found)
    assert (found[0].path, found[0].position) == (error.path, error.position)
    spans = [(each.affects.topic, each.affects.first_offset, each.affects.last_offset) for each in found]
    assert spans[0] == ("t", error.first_offset, error.last_offset) == ("t", 3, 3)
    assert [first for _, first, _ in spans[1:]] == [last + 1 for _, _, last in spans[:-1]]
    assert spans[-1][2] == 11
    assert list(verify(new, level)) == []
    assert list(verify(old, level)) == []


@pytest.mark.parametrize("names", [STATE, ("journal", "checkpoints", "witness"), ("journal", "witness")])
def test_with_the_journal_of_the_logs_all_is_there_again(names):
    old, new, room = two_moments(checkpoint=names is not STATE)
    disk = put_back(new, old, *names)
    refusal(disk, UnprovenLog)
    assert Room(put_back(disk, new, *STATE)).values() == room.values()


def test_what_a_start_writes_to_logs_on_its_way_takes_nothing_from_them():
    """More lies above the checkpoint than the pool holds, so that logs are written before the journal's end is seen."""
    old, new, room = two_moments(before=100, after=20, checkpoint=False)
    disk = put_back(new, old, *STATE)
    with pytest.raises(UnprovenLog) as caught:
        Room(disk)
    assert caught.value.first_offset == 101
    before = {path: data for path, data in contents(new).items() if path.endswith(".log")}
    assert {path: data for path, data in contents(disk).items() if path.endswith(".log")} == before
    assert Room(put_back(disk, new, *STATE)).values() == room.values()


def test_the_log_of_a_topic_that_the_journal_does_not_know_yet_is_refused():
    old, _, room = two_moments(after=0)
    room.topic("later", 1)
    room.send(b"x", number=3)
    room.flush()
    disk = put_back(room.inner, old, *STATE)
    error = refusal(disk, UnprovenLog)
    assert error.path.startswith("partitions/later-0.3/")
    assert (error.first_offset, error.last_offset) == (0, 0)
    assert "without any message" in str(error)
    assert [(f.path, f.unproven) for f in verify(disk) if not f.harmless] == [(error.path, True)]


def test_what_another_history_wrote_behind_the_end_is_refused_too():
    old, new, _ = two_moments()
    other = Room(old.kill_clone())
    other.send(BIG + b"in the place of another")
    other.flush()
    other.clock.advance(2_000_000)
    other.engine.housekeeping.run_inline()
    error = refusal(put_back(new, other.inner, *STATE), UnprovenLog)
    assert error.first_offset == 4


def test_messages_of_large_commits_are_known_by_the_record_that_placed_them():
    room = Room()
    room.topic(segment_bytes=64 * KIB)
    room.begin(*[(1, BIG)] * 30).prepare("p").sync()
    old = disk_of(room)
    decide(room, "p", commit=True)
    room.flush()
    assert room.killed().values() == [BIG] * 30
    assert damages(room.inner.kill_clone()) == []
    assert refusal(put_back(room.inner, old, *STATE), UnprovenLog).first_offset == 0


def test_a_message_that_is_damaged_is_no_reason():
    old, new, _ = two_moments(before=1, after=1)
    disk = put_back(new, old, *STATE)
    error = refusal(disk, UnprovenLog)
    damage(disk, error.path, error.position + 1000)
    assert damages(disk) == []
    assert Room(disk).values() == Room(old).values()


def test_after_a_kill_no_log_is_read_that_is_no_longer_than_what_was_replayed():
    _, new, room = two_moments()
    reads = Fault(Operation.READ, path="partitions/*.log", times=0)
    recover(FaultFilesystem(new, FaultPlan([reads])), room.clock, room.settings)
    assert reads.seen == 1, "the first message of the one segment that the checkpoint has"


@pytest.mark.parametrize("checkpoint", [True, False])
def test_logs_that_a_start_wrote_on_its_way_are_there_after_the_next_checkpoint(checkpoint):
    _, new, room = two_moments(after=100, checkpoint=checkpoint)
    after = Room(new)
    after.checkpoint()
    assert after.crashed(survive=0.0).values() == room.values()


@pytest.mark.parametrize("rest", [b"\xff" * 5000, bytes(5000), b"\x00"])
def test_bytes_that_are_no_messages_are_no_reason(rest):
    _, new, room = two_moments()
    path = max(path for path in contents(new) if path.endswith(".log"))
    file = new.open(path)
    file.write_some(file.size(), [rest])
    file.force()
    assert damages(new) == []
    assert Room(new).values() == room.values()


def test_what_a_deleted_topic_has_left_is_no_reason():
    _, _, room = two_moments()
    room.topic("gone", 1)
    room.send(b"x", number=3)
    room.flush()
    room.engine.accept(TopicDeleted("gone", room.engine.now()))
    room.engine.sync()
    assert room.killed().values() == room.values()
    room.checkpoint()
    assert any("gone-0.3" in path for path in contents(room.inner))
    assert damages(room.inner.kill_clone()) == []
    assert room.killed().values() == room.values()


def test_a_repair_names_what_it_drops_keeps_it_as_evidence_and_the_next_starts_are_sound():
    old, _, room = two_moments()
    everything = room.values()
    room.topic("later", 1)
    room.send(b"x", number=3)
    room.flush()
    disk = put_back(room.inner, old, *STATE)
    later = contents(disk)
    diagnosis = repaired(disk)
    lost = {
        (loss.what.topic, offset)
        for loss in diagnosis.lost
        if loss.what.first_offset is not None
        for offset in range(loss.what.first_offset, loss.what.last_offset + 1)
    }
    assert lost == {("t", offset) for offset in range(3, 12)} | {("later", 0)}
    assert damages(disk) == []
    assert diagnose(disk).is_sound
    kept = b"".join(data for path, data in sorted(contents(disk).items()) if path.startswith("evidence-"))
    for value in everything[3:]:
        assert kept.count(value) == 1
    assert later.keys() - contents(disk).keys() >= {path for path in later if "later-0.3" in path}
    after = Room(disk)
    assert after.values() == everything[:3]
    assert after.send(b"goes on") == 3
    after.flush()
    after = after.crashed(survive=0.0)
    assert after.values() == [*everything[:3], b"goes on"]
    assert len(after.topic("later", 1)) == 1
    assert after.send(b"y", number=3) == 0


@pytest.mark.slow
@pytest.mark.parametrize("survive", [0.0, 0.5, 1.0])
def test_such_a_repair_may_be_cut_at_any_operation(survive):
    old, new, room = two_moments(after=3)
    nth, cut = 0, True
    while cut:
        nth += 1
        disk = put_back(new, old, *STATE)
        cut = cut_at(disk, nth)
        disk = disk.crash_clone(nth, survive)
        finish(disk)
        assert damages(disk) == []
        assert Room(disk).values() == room.values()[:3]
    assert nth > 20
