"""Test fetches: what they return, how long they wait, and which ones are woken."""

import pytest

from journal.records.record import LogStartMoved
from tests.broker.fetches.fetch_scene import SECOND, values
from tests.support.broker_room import Room, frames, refused
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


def test_a_fetch_gives_what_is_there_from_its_offset_on(room, partition):
    peer = room.peer()
    peer.send(partition, b"a", b"b", b"c")
    answer = peer.ask(messages.Fetch, [(partition, 1, 0)])
    assert values(peer, answer) == {partition: [b"b", b"c"]}
    assert (answer.partitions[0].start_offset, answer.partitions[0].high_watermark) == (0, 3)


def test_a_fetch_never_gives_what_is_not_forced(room, partition):
    peer = room.peer()
    peer.tell(messages.Send, partition, data=frames(b"a"))
    got = peer.answer(peer.tell(messages.Fetch, [(partition, 0, 0)]))
    assert (got.partitions[0].length, got.partitions[0].high_watermark) == (0, 0)


def test_a_partition_in_error_does_not_keep_the_others_from_reading(room, partition):
    peer = room.peer()
    peer.send(partition, b"a")
    answer = peer.ask(messages.Fetch, [(99, 0, 0), (partition, 0, 0), (partition, 7, 0)])
    assert [part.error for part in answer.partitions] == ["UnknownPartition", "", "OffsetOutOfRange"]
    assert values(peer, answer)[99] == []
    assert answer.partitions[1].length == len(frames(b"a"))
    assert "from 0 to 1" in answer.partitions[2].message


def test_an_error_waits_for_the_force_of_what_it_tells(room, partition):
    peer = room.peer()
    peer.tell(messages.DeleteTopic, "orders", room.topic_id())
    fetched = peer.tell(messages.Fetch, [(partition, 0, 0)])
    assert peer.answers == []
    room.engine.sync()
    assert peer.answer(fetched).partitions[0].error == "UnknownPartition"


def test_an_answer_is_bounded_but_has_a_frame_if_there_is_one(room):
    one, two = room.topic(partitions=2)
    peer = room.peer()
    size = len(frames(b"x" * 100))
    for partition in (one, two):
        peer.send(partition, *[b"x" * 100] * 5)
    answer = peer.ask(messages.Fetch, [(one, 0, 0), (two, 0, 0)], size * 3)
    assert [part.length for part in answer.partitions] == [size * 3, 0]
    answer = peer.ask(messages.Fetch, [(one, 3, 0), (two, 0, 0)], size * 3)
    assert [part.length for part in answer.partitions] == [size * 2, size]
    for max_bytes in (1, 0, -5):
        answer = peer.ask(messages.Fetch, [(one, 0, 0), (two, 0, 0)], max_bytes)
        assert [part.length for part in answer.partitions] == [size, 0]


def test_a_frame_too_large_for_what_is_left_of_the_room_is_the_next_fetchs(room):
    one, two = room.topic(partitions=2)
    peer = room.peer()
    peer.send(one, b"a")
    peer.send(two, b"b" * 500)
    answer = peer.ask(messages.Fetch, [(one, 0, 0), (two, 0, 0)], 300)
    assert values(peer, answer) == {one: [b"a"], two: []}
    answer = peer.ask(messages.Fetch, [(one, 1, 0), (two, 0, 0)], 300)
    assert values(peer, answer) == {one: [], two: [b"b" * 500]}


def test_the_broker_has_a_bound_of_its_own():
    room = Room(max_fetch=64 * 1024)
    [partition] = room.topic()
    peer = room.peer()
    for _ in range(4):
        peer.send(partition, b"x" * 30_000)
    answer = peer.ask(messages.Fetch, [(partition, 0, 0)], 1 << 40)
    assert answer.partitions[0].length == 2 * len(frames(b"x" * 30_000))


def test_too_many_partitions_are_refused():
    room = Room(max_fetch_positions=2)
    refused(room.peer().ask(messages.Fetch, [(1, 0, 0)] * 3), "LimitExceeded")


class TestWaiting:
    def test_a_fetch_waits_for_the_first_message_and_is_answered_when_that_is_forced(self, room, partition):
        reader, writer = room.peer(), room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        writer.tell(messages.Send, partition, data=frames(b"a"))
        assert reader.answers == []
        room.engine.sync()
        assert values(reader, reader.answer(asked)) == {partition: [b"a"]}
        assert room.timers.getDelayedCalls() == []
        assert room.broker.fetching.waiting == 0

    def test_time_is_up_after_max_wait_and_the_answer_is_empty(self, room, partition):
        reader = room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        room.timers.advance(0.99)
        assert reader.answers == []
        room.timers.advance(0.01)
        assert values(reader, reader.answer(asked)) == {partition: []}
        assert reader.session.fetches == {}

    def test_the_wait_is_bounded_by_the_broker(self):
        room = Room(max_fetch_wait=SECOND)
        [partition] = room.topic()
        reader = room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=100 * SECOND)
        room.timers.advance(1)
        assert reader.answer(asked) is not None

    def test_a_fetch_waits_for_as_many_bytes_as_it_asked_for(self, room):
        one, two = room.topic(partitions=2)
        reader, writer = room.peer(), room.peer()
        size = len(frames(b"x"))
        asked = reader.tell(messages.Fetch, [(one, 0, 0), (two, 0, 0)], max_wait=SECOND, min_bytes=3 * size)
        for partition in (one, two):
            writer.send(partition, b"x")
            assert reader.answers == []
        writer.send(two, b"y")
        assert values(reader, reader.answer(asked)) == {one: [b"x"], two: [b"x", b"y"]}

    def test_bytes_not_yet_forced_when_it_began_to_wait_count_when_they_are(self, room, partition):
        reader, writer = room.peer(), room.peer()
        writer.tell(messages.Send, partition, data=frames(b"x", b"y"))
        asked = reader.tell(
            messages.Fetch, [(partition, 0, 0)], max_wait=SECOND, min_bytes=2 * len(frames(b"x"))
        )
        room.engine.sync()
        assert values(reader, reader.answer(asked)) == {partition: [b"x", b"y"]}

    def test_time_being_up_gives_what_there_is(self, room, partition):
        reader, writer = room.peer(), room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND, min_bytes=10_000)
        writer.send(partition, b"x")
        assert reader.answers == []
        room.timers.advance(1)
        assert values(reader, reader.answer(asked)) == {partition: [b"x"]}

    def test_more_than_max_bytes_is_not_waited_for(self, room, partition):
        reader, writer = room.peer(), room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], 10, SECOND, 1000)
        writer.send(partition, b"x")
        assert values(reader, reader.answer(asked)) == {partition: [b"x"]}

    def test_all_readers_of_a_partition_are_woken_others_are_not(self, room):
        one, two = room.topic(partitions=2)
        readers = [room.peer() for _ in range(5)]
        for reader in readers:
            reader.tell(messages.Fetch, [(one, 0, 0)], max_wait=SECOND)
        other = room.peer()
        other.tell(messages.Fetch, [(two, 0, 0)], max_wait=SECOND)
        room.peer().send(one, b"a")
        assert [len(reader.answers) for reader in readers] == [1] * 5
        assert other.answers == []

    def test_a_deleted_topic_is_told_at_once(self, room, partition):
        reader = room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        room.peer().ask(messages.DeleteTopic, "orders", room.topic_id())
        assert reader.answer(asked).partitions[0].error == "UnknownPartition"

    def test_waiting_fetches_of_a_session_are_bounded(self):
        room = Room(max_fetches_per_session=2)
        [partition] = room.topic()
        reader = room.peer()
        for _ in range(2):
            reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        refused(reader.ask(messages.Fetch, [(partition, 0, 0)]), "LimitExceeded")

    def test_a_cancelled_fetch_is_answered_at_once_and_exactly_once(self, room, partition):
        reader, writer = room.peer(), room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=100 * SECOND)
        reader.tell(messages.Cancel, asked)
        assert values(reader, reader.answer(asked)) == {partition: []}
        assert room.timers.getDelayedCalls() == []
        assert room.broker.fetching.waiting == 0
        reader.tell(messages.Cancel, asked)
        reader.tell(messages.Cancel, 12345)
        writer.send(partition, b"a")
        assert len(reader.answers) == 1

    def test_cancelling_makes_room_for_another_fetch(self):
        room = Room(max_fetches_per_session=1)
        [partition] = room.topic()
        reader = room.peer()
        for _ in range(100):
            asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
            reader.tell(messages.Cancel, asked)
            assert reader.answer(asked).partitions[0].error == ""

    def test_a_fetch_of_another_session_is_not_cancelled(self, room, partition):
        reader, stranger = room.peer(), room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        stranger.tell(messages.Cancel, asked)
        assert reader.answers == []

    def test_a_cancelled_fetch_that_is_behind_unread_answers_waits_for_these(self, room, partition):
        reader = room.peer()
        reader.session.congested = True
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        reader.tell(messages.Cancel, asked)
        assert reader.answers == []
        reader.session.congested = False
        assert reader.answer(asked).partitions[0].length == 0

    def test_a_session_that_ends_leaves_no_timer_and_no_waiter(self, room, partition):
        reader = room.peer()
        reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        reader.leave()
        assert room.timers.getDelayedCalls() == []
        assert room.broker.fetching.waiting == 0

    def test_a_broker_that_stops_answers_all(self, room, partition):
        reader = room.peer()
        asked = reader.tell(messages.Fetch, [(partition, 0, 0)], max_wait=SECOND)
        room.broker.answer_waiting()
        assert reader.answer(asked).partitions[0].length == 0


class TestSlowConsumers:
    def test_a_congested_session_gets_nothing_more_until_it_has_read(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a")
        peer.session.congested = True
        asked = peer.tell(messages.Fetch, [(partition, 0, 0)])
        waiting = peer.tell(messages.Fetch, [(partition, 1, 0)], max_wait=SECOND)
        room.peer().send(partition, b"b")
        assert peer.answer(asked) is None
        peer.session.congested = False
        assert values(peer, peer.answer(asked)) == {partition: [b"a", b"b"]}
        assert values(peer, peer.answer(waiting)) == {partition: [b"b"]}

    def test_congestion_between_two_answers_holds_the_second(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a")
        deliver = peer.session.deliver

        def congesting(data):
            peer.session.congested = True
            deliver(data)

        peer.session.congested = True
        asked = [peer.tell(messages.Fetch, [(partition, 0, 0)]) for _ in range(2)]
        peer.session.deliver = congesting
        peer.session.congested = False
        assert [peer.answer(each) is None for each in asked] == [False, True]


def test_where_a_log_starts_is_told_when_that_is_on_disk(room, partition):
    peer = room.peer()
    peer.send(partition, b"a", b"b", b"c")
    room.engine.accept(LogStartMoved(partition, 2, room.engine.now()))
    asked = peer.tell(messages.Fetch, [(partition, 2, 0)])
    assert peer.answer(asked) is None
    room.engine.sync()
    [part] = peer.answer(asked).partitions
    assert (part.start_offset, part.high_watermark) == (2, 3)
    asked = peer.tell(messages.Fetch, [(partition, 2, 0)])
    assert peer.answer(asked) is not None
