"""Test offsets by time: they are bounded, look at each partition once, in steps, and read the disk on a thread.

Seen to fail: one request with 200,000 entries kept all others waiting for two seconds.
"""

import pytest

from journal.constants import MAX_REQUEST_ENTRIES
from journal.records.record import LogStartMoved
from tests.support.broker_room import Room, refused
from tests.support.manual_worker import ManualWorker
from txbroker.broker.fetches.time_offsets import AT_A_TIME, IN_A_STEP
from txbroker.wire import messages as commands

SECOND = 1_000_000


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def on_disk(room):
    """Partitions with two messages each, a second apart and in segments; the pool, and the time of the second."""
    partitions = room.topic(partitions=100)
    peer = room.peer()
    for _ in range(2):
        room.clock.advance(SECOND)
        for partition in partitions:
            peer.send(partition, b"x" * 100)
    at = room.clock.wall()
    room.flush()
    worker = ManualWorker()
    room.broker.stepwise._run_blocking = worker.submit
    return partitions, worker, at


def test_a_request_names_at_most_as_many_partitions_as_any(room):
    numbers = list(range(1, MAX_REQUEST_ENTRIES + 2))
    text = refused(room.peer().ask(commands.OffsetsForTime, numbers, 0), "LimitExceeded")
    assert str(MAX_REQUEST_ENTRIES) in text
    refused(room.peer().ask(commands.OffsetsForTime, numbers[:-1], 0), "UnknownPartition")


def test_a_partition_that_is_named_twice_is_refused(room):
    one, two = room.topic(partitions=2)
    text = refused(room.peer().ask(commands.OffsetsForTime, [one, two, one], 0), "InvalidSetting")
    assert f"partition {one} is named twice" in text


def test_many_partitions_take_many_steps(room):
    partitions = [*room.topic("a", 2 * IN_A_STEP), *room.topic("b", 2 * IN_A_STEP)]
    peer, steps = room.peer(), []
    peer.session.wake = lambda: None
    room.broker.stepwise.goes_on = lambda: steps.append(None) or False
    asked = peer.tell(commands.OffsetsForTime, partitions, 0)
    while peer.session.due:
        peer.session.go_on()
    assert len(steps) == 4
    assert peer.answer(asked).offsets == [(partition, 0) for partition in partitions]


def test_what_only_the_disk_knows_is_read_on_the_pool_some_at_a_time_and_no_file_is_held_open(room, on_disk):
    partitions, worker, at = on_disk
    peer = room.peer()
    room.engine.open_files.close()
    asked = peer.tell(commands.OffsetsForTime, partitions, at)
    assert len(room.engine.open_files) == 0
    rounds = 0
    while worker.work:
        assert len(worker.work) == 1
        worker.step()
        rounds += 1
    assert rounds == -(-len(partitions) // AT_A_TIME)
    assert peer.answer(asked).offsets == [(partition, 0) for partition in partitions], (
        "early by an index entry"
    )


def test_the_answer_is_in_the_order_in_which_it_was_asked_for(room, on_disk):
    partitions, worker, at = on_disk
    peer = room.peer()
    peer.send(partitions[1], b"in memory")
    asked = peer.tell(commands.OffsetsForTime, partitions[:3], at)
    worker.step()
    assert peer.answer(asked).offsets == [(partitions[0], 0), (partitions[1], 0), (partitions[2], 0)]
    asked = peer.tell(commands.OffsetsForTime, partitions[:3], at + 10 * SECOND)
    assert peer.answer(asked).offsets == [(partitions[0], 2), (partitions[1], 3), (partitions[2], 2)]


def test_a_segment_that_retention_takes_meanwhile_has_its_answer_at_the_logs_new_start(room, on_disk):
    [partition, *_], worker, at = on_disk
    peer = room.peer()
    asked = peer.tell(commands.OffsetsForTime, [partition], at)
    room.engine.accept(LogStartMoved(partition, 2, room.engine.now()))
    store = room.engine.catalog.stores[partition]
    for path in store.segments[0].paths:
        room.engine.open_files.forget(path)
        if room.filesystem.exists(path):
            room.filesystem.unlink(path)
    room.engine.sync()
    worker.step()
    assert peer.answer(asked).offsets == [(partition, 2)]


def test_a_segment_that_is_missing_is_damage(room, on_disk):
    [partition, *_], worker, at = on_disk
    peer = room.peer()
    asked = peer.tell(commands.OffsetsForTime, [partition], at)
    path = room.engine.catalog.stores[partition].segments[0].path
    room.engine.open_files.forget(path)
    room.filesystem.unlink(path)
    worker.step()
    refused(peer.answer(asked), "CorruptSegment")


def test_a_topic_that_is_deleted_meanwhile_is_unknown(room, on_disk):
    partitions, worker, at = on_disk
    peer = room.peer()
    asked = peer.tell(commands.OffsetsForTime, partitions[:1], at)
    room.peer().ask(commands.DeleteTopic, "orders", room.topic_id())
    worker.step()
    room.engine.sync()
    refused(peer.answer(asked), "UnknownPartition")


def test_a_session_that_has_ended_has_no_further_reads(room, on_disk):
    partitions, worker, at = on_disk
    peer = room.peer()
    peer.tell(commands.OffsetsForTime, partitions, at)
    peer.leave()
    worker.step()
    assert worker.work == []
