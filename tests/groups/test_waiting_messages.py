"""Test that a group's description says how long ago the first message that it has not finished was appended.

Seen to fail: with the time of the last append, with messages on the disk left out, and with a read that fails told.
"""

import pytest

from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.records.group_entries import PartitionOffset
from journal.records.record import LogStartMoved
from tests.support.broker_room import Room
from txbroker.wire import messages

SECOND = 1_000_000
ID = b"g" * 16


@pytest.fixture
def room():
    """Three messages of one partition, appended ten seconds apart, and an hour after a topic without any."""
    room = Room()
    room.topic("orders")
    room.topic("empty")
    for value in (b"a", b"b", b"c"):
        room.peer().send(1, value, b"together")
        room.clock.advance(10 * SECOND)
    return room


def stands(room, offset, partition=1):
    answer = room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, offset)], ID)
    assert isinstance(answer, messages.Done), answer


def waiting(room):
    described = room.peer().ask(messages.DescribeGroup, "g")
    assert isinstance(described, messages.GroupMembers), described
    return {(each.topic, each.index): each.waiting for each in described.partitions}


@pytest.mark.parametrize("place", ["memory", "disk", "after a restart", "both"])
def test_it_is_the_age_of_the_message_at_the_position_wherever_that_lies(room, place):
    if place != "memory":
        room.flush()
    if place == "both":
        room.peer().send(1, b"d")
    if place == "after a restart":
        room.restart()
    for offset, seconds in ((0, 30), (1, 30), (2, 20), (3, 20), (4, 10)):
        stands(room, offset)
        assert waiting(room) == {("orders", 0): pytest.approx(seconds * SECOND, abs=1000)}
    stands(room, 6)
    assert waiting(room) == {("orders", 0): 0 if place == "both" else None}


def test_it_grows_while_nothing_is_finished_and_partitions_without_messages_have_none(room):
    stands(room, 2)
    stands(room, 0, 2)
    before = waiting(room)
    room.clock.advance(3600 * SECOND)
    after = waiting(room)
    assert after["orders", 0] - before["orders", 0] == 3600 * SECOND
    assert (before["empty", 0], after["empty", 0]) == (None, None)


def test_of_what_retention_has_removed_the_first_that_is_left_counts(room):
    stands(room, 0)
    room.engine.accept(LogStartMoved(1, 4, room.engine.now()))
    room.engine.sync()
    assert waiting(room) == {("orders", 0): 10 * SECOND}


def test_a_group_without_a_position_waits_for_nothing_that_is_known(room):
    room.peer().ask(messages.ClaimPartitions, "g", "m", [1], ID)
    assert waiting(room) == {("orders", 0): None}


def test_a_message_that_cannot_be_read_is_not_known_and_the_rest_is_told(room):
    room.flush()
    stands(room, 0)
    directory = room.engine.catalog.stores[1].directory
    [log] = [name for name in room.filesystem.list_directory(directory) if name.endswith(".log")]
    file = room.filesystem.open(f"{directory}/{log}")
    file.write_some(SEGMENT_HEADER_BYTES, [b"\xff" * 40])
    file.close()
    described = room.peer().ask(messages.DescribeGroup, "g")
    assert [(each.position, each.lag, each.waiting) for each in described.partitions] == [(0, 6, None)]
