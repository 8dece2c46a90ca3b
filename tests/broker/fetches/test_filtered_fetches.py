"""Test fetches for groups with a filter by tags: what is answered, and when."""

import pytest

from journal.formats import compression, frame
from journal.formats.offset_set_bytes import decode_offsets
from journal.log import tag_filter
from journal.message_headers import TAG_HEADER
from journal.offset_set import OffsetSet
from tests.broker.fetches.fetch_scene import SECOND, unreadable, values
from tests.broker.fetches.filter_scene import fetch, filter_by, finished, position, send, tagged, tell, told
from tests.broker.fetches.group_scene import AHEAD, claim
from tests.support.broker_room import Room
from tests.support.manual_worker import ManualWorker
from txbroker.broker.fetches import filtered_fetches
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room(max_ahead=AHEAD)


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    filter_by(room, "eu")
    return partition


class TestAnswers:
    def test_only_messages_that_match_are_answered(self, room, partition):
        send(room, partition, "-eu-b-u")
        assert fetch(room, partition, 0) == ([1, 4], 7, "0, 2-3, 5-6")
        assert fetch(room, partition, 2) == ([4], 7, "2-3, 5-6")

    def test_a_message_matches_by_any_tag_of_the_group(self, room, partition):
        filter_by(room, "us", "eu")
        send(room, partition, "-eu-b")
        assert fetch(room, partition, 0) == ([1, 2, 4], 5, "0, 3")

    def test_a_tag_is_a_header_of_that_name_alone(self, room, partition):
        for value, key, headers in (
            (b"eu", b"eu", {"eu": b"eu"}),
            (b"1", None, [(TAG_HEADER, b"eux")]),
            (b"2", None, [(TAG_HEADER + "s", b"eu")]),
            (b"3", None, [(TAG_HEADER, b"x"), (TAG_HEADER, b"eu")]),
        ):
            room.peer().ask(messages.Send, partition, data=frame.encode(value, 1, key, headers))
        assert fetch(room, partition, 0) == ([3], 4, "0-2")

    def test_other_groups_and_readers_without_one_get_everything(self, room, partition):
        send(room, partition, "-eu")
        assert fetch(room, partition, 0, group="other") == ([0, 1, 2], 3, "")
        answer = room.peer().ask(messages.Fetch, [(partition, 0, 0)])
        assert answer.partitions[0].next_offset == 3

    @pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
    def test_of_a_batch_those_that_match_come_or_all_if_these_are_half(self, room, partition, codec):
        def batch(*messages):
            inner = b"".join(
                frame.encode_inner(place, b"%d" % number + bytes(200), 1, None, [(TAG_HEADER, tag)])
                for place, (number, tag) in enumerate(messages)
            )
            made = None if codec is None else compression.compressor(codec)
            packed = inner if made is None else made.pack(inner)
            return frame.encode_wrapper(packed, len(messages), 1, 0 if made is None else made.number)

        for data in (
            batch((0, b"us"), (1, b"eu"), (2, b"us")),
            batch((3, b"eu"), (4, b"us")),
            batch((5, b"eu"), (6, b"eu")),
        ):
            room.peer().ask(messages.Send, partition, data=data)
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation) == ([1, 3, 4, 5, 6], 7, "0, 2, 4")
        assert (position(room, partition), finished(room, partition)) == (1, "2, 4")
        assert fetch(room, partition, 2, generation) == ([3, 4, 5, 6], 7, "2, 4")

    def test_an_answer_ends_at_its_bound_of_bytes(self, room, partition):
        send(room, partition, "eueue", size=30_000)
        peer = room.peer()
        reader = messages.Reader("g", 0, [0], [])
        asked = peer.tell(messages.Fetch, [(partition, 0, 0)], 65_000, SECOND, 1, [reader])
        assert told(peer, asked, 0) == ([0, 2], 4, "1, 3")

    def test_none_that_begins_at_until_is_answered(self, room, partition):
        send(room, partition, "ue-e--e")
        assert fetch(room, partition, 0, until=4) == ([1, 3], 4, "0, 2")
        assert fetch(room, partition, 4, until=5) == ([], 6, "4-5")
        assert fetch(room, partition, 4, until=7) == ([6], 7, "4-5")

    def test_an_offset_beyond_the_end_of_the_log_is_refused(self, room, partition):
        send(room, partition, "ee-")
        assert fetch(room, partition, 4) == "OffsetOutOfRange"
        generation = claim(room, partition)
        assert fetch(room, partition, 4, generation) == "OffsetOutOfRange"
        assert fetch(room, partition, 0, generation) == ([0, 1], 3, "2")
        assert fetch(room, partition, 4, generation) == "OffsetOutOfRange"

    def test_for_a_negative_until_nothing_is_examined_as_without_a_filter(self, room, partition):
        send(room, partition, "-e")
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        for group in "g", "other":
            peer = room.peer()
            asked = tell(peer, partition, 0, until=-1, group=group)
            assert pool.work == []
            room.timers.advance(1)
            assert told(peer, asked, 0) == ([], 0, "")

    def test_the_reactor_decodes_nothing(self, room, partition, monkeypatch):
        send(room, partition, "ue")
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0)
        assert peer.answer(asked) is None
        assert len(pool.work) == 1
        pool.step()
        assert told(peer, asked, 0) == ([1], 2, "0")

    def test_a_frame_that_cannot_be_opened_is_answered_as_without_a_filter(self, room, partition):
        made = compression.compressor("zstd")
        packed = bytearray(made.pack(b"".join(frame.encode_inner(n, bytes(500), 1) for n in range(2))))
        send(room, partition, "-")
        store = room.engine.catalog.stores[partition]
        packed[-4:] = b"oops"
        room.engine.append(store, frame.encode_wrapper(bytes(packed), 2, 1, made.number), 2)
        room.engine.sync()
        send(room, partition, "-", 3)
        peer = room.peer()
        asked = tell(peer, partition, 0)
        [part] = peer.answer(asked).partitions
        assert (part.length > 0, part.next_offset, str(decode_offsets(part.finished, 0))) == (True, 4, "0, 3")


class TestWaiting:
    def test_what_does_not_match_is_not_answered_before_the_time_is_up(self, room, partition):
        send(room, partition, "--")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        send(room, partition, "u", 2)
        assert peer.answer(asked) is None
        assert position(room, partition) is None
        room.timers.advance(1)
        room.engine.sync()
        assert told(peer, asked, 0) == ([], 3, "0-2")
        assert position(room, partition) == 3

    def test_a_message_that_matches_is_answered_at_once_with_all_that_was_examined_before(
        self, room, partition
    ):
        send(room, partition, "--")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        send(room, partition, "uue", 2)
        assert told(peer, asked, 0) == ([4], 5, "0-3")
        assert position(room, partition) == 4

    def test_what_was_examined_is_not_examined_again_while_it_waits(self, room, partition, monkeypatch):
        read, take = [], filtered_fetches.FilteredFetches.take

        def noted(self, fetch, reading, part, result):
            read.append(result[0].begin)
            take(self, fetch, reading, part, result)

        monkeypatch.setattr(filtered_fetches.FilteredFetches, "take", noted)
        send(room, partition, "--")
        tell(room.peer(), partition, 0)
        send(room, partition, "---", 2)
        assert read == [0, 2, 3, 4]

    def test_a_fetch_that_may_not_wait_examines_one_part(self, room, partition):
        send(room, partition, "--u")
        assert fetch(room, partition, 0, wait=0) == ([], 3, "0-2")

    def test_a_cancelled_fetch_tells_how_far_it_is(self, room, partition):
        send(room, partition, "--u")
        peer = room.peer()
        asked = tell(peer, partition, 0)
        peer.ask(messages.Cancel, asked)
        assert told(peer, asked, 0) == ([], 3, "0-2")

    def test_a_long_log_is_examined_in_parts_and_the_reader_told_now_and_then(
        self, room, partition, monkeypatch
    ):
        monkeypatch.setattr(filtered_fetches, "IN_MEMORY", 1)
        monkeypatch.setattr(filtered_fetches, "LEAST", 1)
        monkeypatch.setattr(filtered_fetches, "IN_AN_ANSWER", 300)
        send(room, partition, "-" * 20)
        size = len(tagged(10))
        generation = claim(room, partition)
        offset, answers = 0, 0
        while offset < 20:
            numbers, following, _ = fetch(room, partition, offset, generation, wait=60 * SECOND) or (
                [],
                20,
                "",
            )
            assert numbers == []
            assert following - offset <= 300 // size + 2
            offset, answers = following, answers + 1
        assert answers >= 20 * size // 300

    def test_a_long_log_is_answered_in_time_too(self, room, partition, monkeypatch):
        monkeypatch.setattr(filtered_fetches, "IN_MEMORY", 1)
        monkeypatch.setattr(filtered_fetches, "LEAST", 1)
        send(room, partition, "-----")
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0)
        pool.step()
        room.timers.advance(1)
        assert peer.answer(asked) is None
        pool.step()
        assert told(peer, asked, 0) == ([], 2, "0-1")

    def test_fetches_that_get_no_further_wait_until_something_has_changed(self, room, partition, monkeypatch):
        send(room, partition, "-e")
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        with monkeypatch.context() as nothing:
            nothing.setattr(
                tag_filter.FilteredRead,
                "run",
                lambda read: (tag_filter.Filtered(b"", read.begin, OffsetSet()), 0),
            )
            asked = [tell(peer, partition, 0) for _ in range(2)]
            for _ in range(2):
                pool.step()
            assert pool.work == []
        send(room, partition, "-", 2)
        for _ in range(2):
            pool.step()
        assert [told(peer, each, 0) for each in asked] == [([1], 3, "0, 2")] * 2

    def test_parts_of_other_sessions_come_in_between(self, room, partition, monkeypatch):
        monkeypatch.setattr(filtered_fetches, "IN_MEMORY", 1)
        monkeypatch.setattr(filtered_fetches, "LEAST", 1)
        send(room, partition, "-----")
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        first, second = room.peer(), room.peer()
        tell(first, partition, 0)
        asked = tell(second, partition, 4)
        send(room, partition, "e", 5)
        for _ in range(3):
            pool.step()
            pool.step()
        assert told(second, asked, 4) == ([5], 6, "4")


class TestManyPartitions:
    def test_filtered_and_other_positions_share_a_fetch(self, room):
        numbers = room.topic(partitions=3)
        filter_by(room, "eu")
        for number in numbers:
            send(room, number, "u" * 3)
        send(room, numbers[1], "e", 3)
        peer = room.peer()
        positions = [(number, 0, 0) for number in numbers]
        readers = [messages.Reader("g", 0, [0, 0], []), messages.Reader("other", 2, [0], [])]
        asked = peer.tell(messages.Fetch, positions, 1 << 20, SECOND, 1, readers)
        found = values(peer, peer.answer(asked))
        assert {number: len(each) for number, each in found.items()} == dict(
            zip(numbers, (0, 1, 3), strict=True)
        )
        assert [part.next_offset for part in peer.answer(asked).partitions] == [3, 4, 3]

    def test_damage_in_one_partition_does_not_keep_the_others_from_being_examined(self, room, monkeypatch):
        bad, good = room.topic(partitions=2)
        filter_by(room, "eu")
        for number in (bad, good):
            send(room, number, "-e")
        room.flush()
        unreadable(monkeypatch, room.engine.catalog.stores[bad].directory)
        peer = room.peer()
        reader = messages.Reader("g", 0, [0, 0], [])
        asked = peer.tell(messages.Fetch, [(bad, 0, 0), (good, 0, 0)], 1 << 20, SECOND, 1, [reader])
        parts = peer.answer(asked).partitions
        assert [part.error for part in parts] == ["StorageUnavailable", ""]
        assert parts[1].next_offset == 2

    def test_a_fetch_of_very_many_is_answered_after_some_of_them(self, room, monkeypatch):
        monkeypatch.setattr(filtered_fetches, "MOST_PLACES", 2)
        numbers = room.topic(partitions=40)
        filter_by(room, "eu")
        for number in numbers:
            send(room, number, "-")
        peer = room.peer()
        reader = messages.Reader("g", 0, [0] * 40, [])
        asked = peer.tell(
            messages.Fetch, [(number, 0, 0) for number in numbers], 1 << 20, SECOND, 1, [reader]
        )
        ends = [part.next_offset for part in peer.answer(asked).partitions]
        assert sorted(ends) == [0] * 24 + [1] * 16  # as many as share its bytes
