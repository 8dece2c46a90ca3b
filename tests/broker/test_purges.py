"""Purging through the broker's door: the start of a log moves, for good, or nothing changes."""

import pytest

from journal.engine.settings import JournalSettings
from journal.records.record import LogStartMoved
from tests.support.broker_room import Room, frames
from txbroker.wire import messages
from txbroker.wire.messages import MAX_PURGED

SECOND = 1_000_000


@pytest.fixture
def room():
    return Room()


def starts(room, name="t"):
    [topic] = room.peer().ask(messages.DescribeTopics, [name]).topics
    return [(part.start_offset, part.high_watermark) for part in topic.partitions]


def fill(room, partitions=2, messages_each=5):
    numbers = room.topic("t", partitions=partitions)
    peer = room.peer()
    for number in numbers:
        for place in range(messages_each):
            peer.send(number, b"%d" % place)
    return numbers


def test_messages_below_are_gone_also_after_a_restart_and_those_from_there_on_are_read(room):
    first, second = fill(room)
    assert isinstance(room.peer().ask(messages.Purge, [(first, 3), (second, 5)]), messages.Done)
    assert starts(room) == [(3, 5), (5, 5)]
    room.restart()
    assert starts(room) == [(3, 5), (5, 5)]
    below = room.peer().ask(messages.Fetch, [(first, 2, 0)])
    assert (below.partitions[0].error, below.partitions[0].start_offset) == ("OffsetOutOfRange", 3)
    assert room.peer().send(second, b"next").base_offset == 5


def test_a_start_never_goes_back(room):
    first, _ = fill(room)
    for offset in (4, 2, 0):
        assert isinstance(room.peer().ask(messages.Purge, [(first, offset)]), messages.Done)
    assert starts(room)[0] == (4, 5)


@pytest.mark.parametrize("offset", [6, -1, 1 << 62])
def test_an_offset_that_is_not_there_purges_nothing_at_all(room, offset):
    first, second = fill(room)
    refused = room.peer().ask(messages.Purge, [(first, 3), (second, offset)])
    assert (refused.error, starts(room)) == ("OffsetOutOfRange", [(0, 5), (0, 5)])
    assert "nothing has changed" in refused.message


def test_a_partition_that_is_not_there_purges_nothing_at_all(room):
    first, _ = fill(room)
    refused = room.peer().ask(messages.Purge, [(first, 3), (999, 0)])
    assert (refused.error, starts(room)[0]) == ("UnknownPartition", (0, 5))


def test_a_message_that_is_not_forced_yet_is_not_purged(room):
    first, _ = fill(room)
    peer = room.peer()
    peer.tell(messages.Send, first, data=frames(b"not forced"))
    asked = peer.tell(messages.Purge, [(first, 6)])
    room.engine.sync()
    assert peer.answer(asked).error == "OffsetOutOfRange"
    assert isinstance(peer.ask(messages.Purge, [(first, 6)]), messages.Done)


def test_the_outcome_archive_cannot_be_purged():
    room = Room(JournalSettings(low_water_bytes=0, outcome_archive=True))
    [own] = [store for store in room.engine.catalog.stores.values() if store.internal]
    refused = room.peer().ask(messages.Purge, [(own.number, 0)])
    assert refused.error == "InvalidName"


def test_more_partitions_than_one_turn_allows_are_refused(room):
    first, _ = fill(room)
    refused = room.peer().ask(messages.Purge, [(first, 1)] * (MAX_PURGED + 1))
    assert (refused.error, starts(room)[0]) == ("LimitExceeded", (0, 5))


def test_a_group_below_goes_on_as_after_retention(room):
    first, _ = fill(room)
    peer = room.peer()
    peer.ask(messages.CommitOffsets, "g", [messages.PartitionOffset(first, 1)])
    peer.ask(messages.Purge, [(first, 4)])
    [at] = peer.ask(messages.FetchOffsets, "g", [first]).offsets
    assert at.offset == 1
    assert peer.ask(messages.Fetch, [(first, at.offset, 0)]).partitions[0].error == "OffsetOutOfRange"


def test_a_fetch_that_waits_below_the_new_start_is_told_once_that_is_forced(room):
    first, second = fill(room)
    reader, peer = room.peer(), room.peer()
    waits = reader.tell(messages.Fetch, [(first, 3, 0)], max_wait=SECOND, min_bytes=10_000)
    other = reader.tell(messages.Fetch, [(second, 3, 0)], max_wait=SECOND, min_bytes=10_000)
    peer.tell(messages.Purge, [(first, 4)])
    assert reader.answers == []
    room.engine.sync()
    [part] = reader.answer(waits).partitions
    assert (part.error, part.start_offset) == ("OffsetOutOfRange", 4)
    assert reader.answer(other) is None


def test_what_is_dropped_is_not_waited_for_anew(room):
    [number] = room.topic("t", segment_bytes=1 << 16)
    writer, reader = room.peer(), room.peer()
    for _ in range(3):
        writer.send(number, bytes(60_000))
        room.flush()
    asked = reader.tell(messages.Fetch, [(number, 3, 0)], max_wait=SECOND, min_bytes=1000)
    room.engine.accept(LogStartMoved(number, 2, room.engine.now()))  # as retention does
    room.engine.sync()
    writer.send(number, bytes(1000))
    assert reader.answer(asked).partitions[0].length > 1000
