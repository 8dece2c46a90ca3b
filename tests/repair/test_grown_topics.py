"""Repairs of topics that got more partitions: a growth that is lost leaves nothing behind for the next one."""

import pytest

from journal.check import JournalEntry, Level, verify, walk_journal
from journal.records.record import TopicAltered
from tests.repair.repair_scene import held, repaired
from tests.support.engine_room import Room, damage


def grow(room, partitions):
    catalog = room.engine.catalog
    room.engine.accept(catalog.judge_alteration(catalog.topics["t"], {}, room.engine.now(), partitions))
    room.engine.sync()


def damages(room):
    return [each for each in verify(room.inner.kill_clone(), Level.DEEP) if not each.harmless]


@pytest.mark.parametrize("flushed", [False, True])
def test_a_lost_growth_takes_what_was_sent_to_its_partitions_and_the_next_one_begins_empty(flushed):
    room = Room()
    room.topic("t", 2)
    room.send(b"old")
    room.checkpoint()
    grow(room, 3)
    room.send(b"lost", number=3)
    room.send(b"lost, too", number=3)
    if flushed:
        room.flush()
        assert "t-2.3" in room.inner.list_directory("partitions")
    filesystem = room.inner.kill_clone()
    [growth] = [
        each
        for each in walk_journal(filesystem)
        if isinstance(each, JournalEntry) and isinstance(each.record, TopicAltered)
    ]
    damage(filesystem, growth.path, growth.position + 20)
    lost = [loss.text for loss in repaired(filesystem).lost]
    assert any(text.startswith(f"the records of LSN {growth.lsn}") for text in lost), lost
    after = Room(filesystem)
    assert held(after).values == {("t", 0): [b"old"], ("t", 1): []}
    grow(after, 3)
    after.send(b"new", number=3)
    after.flush()
    for room in (after, after.killed()):
        assert held(room).values == {("t", 0): [b"old"], ("t", 1): [], ("t", 2): [b"new"]}
        assert damages(room) == []


def test_a_damaged_log_of_a_partition_that_came_later_is_repaired_from_the_journal():
    room = Room()
    room.topic("t", 1)
    room.topic("other", 1)
    grow(room, 2)
    for number in range(5):
        room.send(b"%d" % number, number=3)
    room.checkpoint()
    filesystem = room.inner.kill_clone()
    [name] = filesystem.list_directory("partitions")
    [log] = [file for file in filesystem.list_directory(f"partitions/{name}") if file.endswith(".log")]
    damage(filesystem, f"partitions/{name}/{log}", 70)
    assert repaired(filesystem).lost == []
    after = Room(filesystem)
    assert held(after).values["t", 1] == [b"%d" % number for number in range(5)]
    assert damages(after) == []
