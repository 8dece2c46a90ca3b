"""Test the search for messages by key or id: in memory and on disk, in steps on the pool, over changes meanwhile."""

import pytest

from journal.constants import MAX_ATTRIBUTE, MAX_REQUEST_ENTRIES
from journal.formats import frame
from journal.message_headers import ID_HEADER, TAG_HEADER
from journal.records.record import LogStartMoved
from journal.vfs.filesystem import write_fully
from tests.support.broker_room import Room, refused
from tests.support.manual_worker import ManualWorker
from txbroker.broker.fetches import message_search
from txbroker.wire import messages as commands


@pytest.fixture
def room():
    return Room()


def message(key, id, value=b"v"):
    return frame.encode(value, 1, key, {ID_HEADER: id})


def fill(room, partition, numbers, value=b"v"):
    peer = room.peer()
    for number in numbers:
        peer.ask(commands.Send, partition, data=message(b"k%d" % (number % 3), b"id-%d" % number, value))


def find(room, partition, offset=0, **wanted):
    return room.peer().ask(commands.FindMessages, partition, offset, **wanted)


def test_messages_are_found_in_memory_and_in_segments(room):
    [partition] = room.topic(segment_bytes=64 << 10)
    fill(room, partition, range(5), bytes(20_000))
    room.flush()
    fill(room, partition, range(5, 9))
    found = find(room, partition, key=b"k1")
    assert (found.offsets, found.next_offset, found.start_offset, found.high_watermark) == (
        [1, 4, 7],
        9,
        0,
        9,
    )
    assert find(room, partition, id=b"id-6").offsets == [6]
    assert find(room, partition, key=b"k1", id=b"id-6").offsets == []
    assert find(room, partition, 2, key=b"k1").offsets == [4, 7]
    found = find(room, partition, key=b"k1", until=7)
    assert (found.offsets, found.next_offset) == ([1, 4], 7)
    room.restart()
    assert find(room, partition, key=b"k1").offsets == [1, 4, 7]


def test_messages_are_found_by_a_tag_in_memory_and_in_segments(room):
    [partition] = room.topic(segment_bytes=64 << 10)
    peer = room.peer()
    for number in range(9):
        tags = [(TAG_HEADER, b"third")] * (number % 3 == 0) + [(TAG_HEADER, b"t%d" % number)]
        peer.ask(commands.Send, partition, data=frame.encode(bytes(20_000), 1, b"k", tags))
        if number < 7:
            room.flush()
    for _ in range(2):  # without tables, and with those that the first search has left
        assert find(room, partition, tag=b"third").offsets == [0, 3, 6]
        assert find(room, partition, tag=b"t4").offsets == [4]
        assert find(room, partition, tag=b"third", key=b"k").offsets == [0, 3, 6]
        assert find(room, partition, tag=b"third", key=b"other").offsets == []
        assert find(room, partition, tag=b"k").offsets == []
        room.engine.housekeeping.run_inline()
    assert any(
        room.filesystem.exists(each.keys_path) for each in room.engine.catalog.stores[partition].segments
    )


def test_an_answer_has_at_most_so_many_and_says_where_to_go_on(room):
    [partition] = room.topic()
    fill(room, partition, range(9))
    found = find(room, partition, key=b"k1", most=2)
    assert found.offsets == [1, 4]
    found = find(room, partition, found.next_offset, key=b"k1", most=2)
    assert (found.offsets, found.next_offset) == ([7], 9)


def test_an_answer_examines_a_part_in_steps_on_the_pool(room, monkeypatch):
    monkeypatch.setattr(message_search, "IN_A_STEP", 2_000)
    monkeypatch.setattr(message_search, "IN_AN_ANSWER", 5_000)
    [partition] = room.topic()
    fill(room, partition, range(20), bytes(900))
    room.flush()
    worker = ManualWorker()
    room.broker.stepwise._run_blocking = worker.submit
    peer = room.peer()
    asked, steps = peer.tell(commands.FindMessages, partition, 0, b"k1"), 0
    while worker.work:
        worker.step()
        steps += 1
    found = peer.answer(asked)
    assert (found.offsets, found.next_offset, steps) == ([1, 4], 6, 3)


def test_what_is_not_published_is_not_found(room):
    [partition] = room.topic()
    fill(room, partition, range(3))
    peer = room.peer()
    peer.tell(commands.Add, 1, partition, data=message(b"k1", b"x"))
    assert find(room, partition, key=b"k1").offsets == [1]


def test_what_retention_takes_meanwhile_is_left_out(room):
    [partition] = room.topic(segment_bytes=64 << 10)
    fill(room, partition, range(9), bytes(20_000))
    room.flush()
    worker = ManualWorker()
    room.broker.stepwise._run_blocking = worker.submit
    peer, store = room.peer(), room.engine.catalog.stores[partition]
    asked = peer.tell(commands.FindMessages, partition, 0, b"k1")
    gone = store.segments[0]
    room.engine.accept(LogStartMoved(partition, gone.end_offset, room.engine.now()))
    for path in gone.paths:
        room.engine.open_files.forget(path)
        if room.filesystem.exists(path):
            room.filesystem.unlink(path)
    room.engine.sync()
    while worker.work:
        worker.step()
    found = peer.answer(asked)
    assert set(found.offsets) <= {1, 4, 7}
    assert {each for each in (1, 4, 7) if each >= gone.end_offset} <= set(found.offsets)
    assert (found.start_offset, found.next_offset) == (gone.end_offset, 9)


def test_a_topic_that_is_deleted_meanwhile_is_unknown(room):
    [partition] = room.topic()
    fill(room, partition, range(3))
    room.flush()
    worker = ManualWorker()
    room.broker.stepwise._run_blocking = worker.submit
    peer = room.peer()
    asked = peer.tell(commands.FindMessages, partition, 0, b"k1")
    room.peer().ask(commands.DeleteTopic, "orders", room.topic_id())
    worker.step()
    room.engine.sync()
    refused(peer.answer(asked), "UnknownPartition")


def test_damage_is_told_where_it_begins_and_what_lies_before_it_is_answered(room, monkeypatch):
    monkeypatch.setattr(message_search, "IN_A_STEP", 900)
    [partition] = room.topic()
    fill(room, partition, range(6), bytes(900))
    room.flush()
    [segment] = room.engine.catalog.stores[partition].segments
    file = room.filesystem.open(segment.path)
    size = segment.frame_bytes // 6
    write_fully(file, 64 + 3 * size + 200, [b"damage"])
    file.close()
    found = find(room, partition, key=b"k1")
    assert (found.offsets, found.next_offset) == ([1], 3)
    text = refused(find(room, partition, found.next_offset, key=b"k1"), "CorruptSegment")
    assert "offset 3" in text
    assert find(room, partition, 4, key=b"k1").offsets == [4]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "InvalidSetting"),
        ({"key": b"x" * MAX_ATTRIBUTE, "id": b"y"}, "LimitExceeded"),
        ({"key": b"x", "most": 0}, "LimitExceeded"),
        ({"key": b"x", "most": MAX_REQUEST_ENTRIES + 1}, "LimitExceeded"),
    ],
)
def test_a_question_without_an_answer_is_refused(room, fields, error):
    [partition] = room.topic()
    refused(find(room, partition, **fields), error)


def test_an_unknown_partition_and_offsets_beyond_the_log(room):
    refused(find(room, 99, key=b"x"), "UnknownPartition")
    [partition] = room.topic()
    fill(room, partition, range(3))
    for offset in (3, 1 << 62):
        found = find(room, partition, offset, key=b"k1")
        assert (found.offsets, found.next_offset, found.high_watermark) == ([], offset, 3)
    assert find(room, partition, -5, key=b"k1").offsets == [1]
