"""Test fetches for groups with a filter by tags: what is answered, what is finished, when, and what is examined again.

A message is told by its number; its tag says what it is for.
"""

import random

import pytest

from journal.formats import compression, frame
from journal.formats.group_entries import (
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    Settled,
    Unfinished,
)
from journal.formats.offset_set_bytes import decode_offsets, encode_offsets
from journal.formats.record import LogStartMoved
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.log import key_tables, tag_filter
from journal.message_headers import TAG_HEADER
from journal.offset_set import OffsetSet
from journal.vfs.filesystem import write_fully
from journal.xid import Xid
from tests.broker.fetches.fetch_scene import SECOND, unreadable, values
from tests.support.broker_room import Room
from tests.support.manual_worker import ManualWorker
from txbroker.broker import filtered_fetches, tagged_segments
from txbroker.wire import messages

XID, ID = Xid(1, b"x", b""), b"g" * 16
AHEAD = 50


@pytest.fixture
def room():
    return Room(max_ahead=AHEAD)


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    filter_by(room, "eu")
    return partition


def filter_by(room, *tags, group="g"):
    settings = GroupSettings(tags=sorted(tags))
    done = room.peer().ask(messages.AlterGroup, group, settings, ["tags"], messages.Whether.ALWAYS, ID)
    assert isinstance(done, messages.Done), done


def tagged(number, *tags, size=0):
    headers = [(TAG_HEADER, tag.encode()) for tag in tags]
    return frame.encode(b"%d" % number + bytes(size), 1, b"key", headers)


def send(room, partition, text, first=0, size=0):
    """Send a message for each letter: e is for eu, u for us, b for both, and - for nobody."""
    tags = {"e": ["eu"], "u": ["us"], "b": ["us", "eu"], "-": []}
    for number, letter in enumerate(text, first):
        data = tagged(number, *tags[letter], size=size)
        assert isinstance(room.peer().ask(messages.Send, partition, data=data), messages.Sent)


def claim(room, partition):
    return room.peer().ask(messages.ClaimPartitions, "g", "m", [partition], ID).claims[0][1]


def tell(peer, partition, offset, generation=0, until=0, wait=SECOND, missing=None, group="g"):
    reader = messages.Reader(group, 0, [generation], missing or [])
    return peer.tell(messages.Fetch, [(partition, offset, until)], 1 << 20, wait, 1, [reader])


def told(peer, asked, base):
    """What an answer says: its messages' numbers, the offset after them, and what is finished; None without one."""
    answer = peer.answer(asked)
    if answer is None:
        return None
    [part] = answer.partitions
    if part.error:
        return part.error
    numbers = [int(value.rstrip(b"\0")) for value in values(peer, answer)[part.partition]]
    return numbers, part.next_offset, str(decode_offsets(part.finished, base))


def fetch(room, partition, offset, generation=0, base=None, **choices):
    peer = room.peer()
    asked = tell(peer, partition, offset, generation, **choices)
    room.engine.sync()
    return told(peer, asked, offset if base is None else base)


def position(room, partition, group="g"):
    return room.broker.groups.find(group).position(partition)


def finished(room, partition, group="g"):
    """What the group has finished above its position."""
    settlement = room.broker.groups.find(group).settlements.get(partition)
    return "" if settlement is None else str(settlement.finished)


def finish(room, *what, offsets=()):
    room.broker.consuming.settle("g", ID, list(offsets), list(what))
    room.engine.sync()


def settled(partition, *offsets, unfinished=(), generation=0):
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    said = [Unfinished(*each) for each in unfinished]
    return Settled(partition, generation, 0, encode_offsets(found, 0), said)


def prepare(room, *what, offsets=()):
    positions = [GroupPositions("g", ID, list(offsets), list(what))]
    assert isinstance(room.peer().ask(messages.Prepare, 1, XID, None, positions=positions), messages.Done)


def end(room, kind):
    room.peer().ask(kind, 0, 0, XID)


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


class TestFinishing:
    def test_for_a_claim_what_does_not_match_is_finished_when_it_is_answered(self, room, partition):
        send(room, partition, "--e-e--")
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation) == ([2, 4], 7, "0-1, 3, 5-6")
        assert (position(room, partition), finished(room, partition)) == (2, "3, 5-6")

    def test_without_a_claim_nothing_is_finished(self, room, partition):
        send(room, partition, "--e")
        assert fetch(room, partition, 0) == ([2], 3, "0-1")
        assert position(room, partition) is None
        finish(room, offsets=[PartitionOffset(partition, 0)])
        assert fetch(room, partition, 0) == ([2], 3, "0-1")
        assert (position(room, partition), finished(room, partition)) == (0, "")

    def test_the_first_position_of_a_group_is_where_its_reader_begins(self, room, partition):
        send(room, partition, "---e-e")
        generation = claim(room, partition)
        assert fetch(room, partition, 2, generation) == ([3, 5], 6, "2, 4")
        assert (position(room, partition), finished(room, partition)) == (3, "4")

    def test_a_position_moves_on_over_what_was_finished(self, room, partition):
        send(room, partition, "e--e--")
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        finish(room, offsets=[PartitionOffset(partition, 1, generation)])
        assert position(room, partition) == 3
        finish(room, settled(partition, 3, generation=generation))
        assert position(room, partition) == 6

    def test_the_answer_waits_for_the_force(self, room, partition):
        send(room, partition, "-e")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        assert peer.answer(asked) is None
        room.engine.sync()
        assert told(peer, asked, 0) == ([1], 2, "0")

    def test_an_answer_waits_for_the_force_of_the_filter(self, room, partition):
        send(room, partition, "ue")
        peer = room.peer()
        settings = GroupSettings(tags=["us"])
        peer.tell(messages.AlterGroup, "g", settings, ["tags"], messages.Whether.ALWAYS, ID)
        asked = tell(peer, partition, 0)
        assert peer.answer(asked) is None
        room.engine.sync()
        assert told(peer, asked, 0) == ([0], 2, "1")

    def test_what_has_been_forced_is_finished_after_a_restart_and_nothing_else(self, room, partition):
        send(room, partition, "-e-e--")
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        room.restart()
        assert (position(room, partition), finished(room, partition)) == (1, "2, 4-5")
        send(room, partition, "--", 6)
        peer = room.peer()
        tell(peer, partition, 6, generation, wait=0)
        room.engine.close()  # before the force
        room.start()
        assert (position(room, partition), finished(room, partition)) == (1, "2, 4-5")
        assert room.broker.groups.find("g").settings.tags == ["eu"]

    def test_what_has_attempts_comes_and_is_not_finished(self, room, partition):
        send(room, partition, "-u-e")
        generation = claim(room, partition)
        finish(room, settled(partition, unfinished=[(1, 2, 0, "why")], generation=generation))
        assert fetch(room, partition, 0, generation) == ([1, 3], 4, "0, 2")
        assert (position(room, partition), finished(room, partition)) == (1, "2")

    def test_nor_is_what_has_failed_since_it_was_examined(self, room, partition):
        send(room, partition, "-u-")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        finish(room, settled(partition, unfinished=[(1, 2, 0, "why")], generation=generation))
        room.timers.advance(1)
        room.engine.sync()
        assert peer.answer(asked) is not None
        assert (position(room, partition), finished(room, partition)) == (1, "2")

    def test_what_waits_for_its_time_is_told_as_waiting(self, room, partition):
        send(room, partition, "-ue")
        generation = claim(room, partition)
        later = room.engine.now() + 5 * SECOND
        finish(room, settled(partition, unfinished=[(1, 2, later, "why")], generation=generation))
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        room.engine.sync()
        [part] = peer.answer(asked).partitions
        assert str(decode_offsets(part.waiting, 0)) == "1"
        assert told(peer, asked, 0) == ([1, 2], 3, "0")

    def test_a_fenced_reader_finishes_nothing(self, room, partition):
        send(room, partition, "--")
        old = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0, old, wait=0)
        claim(room, partition)
        pool.step()
        room.engine.sync()
        assert told(peer, asked, 0) == "GenerationFenced"
        assert position(room, partition) is None

    def test_a_session_that_ends_meanwhile_finishes_nothing(self, room, partition):
        send(room, partition, "--")
        generation = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        tell(peer, partition, 0, generation, wait=0)
        peer.leave()
        pool.step()
        room.engine.sync()
        assert position(room, partition) is None

    def test_a_topic_that_is_deleted_meanwhile_is_told(self, room, partition):
        send(room, partition, "--")
        generation = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0, generation, wait=0)
        room.peer().ask(messages.DeleteTopic, "orders", room.topic_id())
        pool.step()
        room.engine.sync()
        assert told(peer, asked, 0) == "GenerationFenced"

    def test_what_retention_removes_meanwhile_is_finished(self, room, partition):
        send(room, partition, "---e--")
        generation = claim(room, partition)
        pool = ManualWorker()
        room.broker.fetching._run_blocking = pool.submit
        peer = room.peer()
        asked = tell(peer, partition, 0, generation)
        room.engine.accept(LogStartMoved(partition, 2, room.engine.now()))
        room.engine.catalog.stores[partition].move_start(2)
        pool.step()
        room.engine.sync()
        assert told(peer, asked, 0) == ([3], 6, "0-2, 4-5")
        assert (position(room, partition), finished(room, partition)) == (3, "4-5")

    def test_on_a_full_disk_it_is_left_and_finished_later(self, room, partition):
        send(room, partition, "-e-")
        generation = claim(room, partition)
        room.engine.full_at = 0
        assert fetch(room, partition, 0, generation)[:2] == ([1], 3)
        assert (
            position(room, partition) == 1
        )  # a claimed partition is no new one: to finish something is always possible

    def test_the_lag_moves_on(self, room, partition):
        send(room, partition, "--e---")
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        finish(room, offsets=[PartitionOffset(partition, 3, generation)])
        [group] = room.peer().ask(messages.ListGroups).groups
        assert group.positions == [("orders", 0, 6, 0)]


class TestExaminedAgain:
    def test_what_is_too_far_ahead_is_finished_when_the_lowest_is(self, room, partition):
        send(room, partition, "e" + "-" * 2 * AHEAD + "e")
        end = 2 * AHEAD + 2
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation)[:2] == ([0, end - 1], end)
        assert (position(room, partition), finished(room, partition)) == (0, f"1-{AHEAD - 1}")
        peer = room.peer()
        asked = tell(peer, partition, end, generation)  # it waits, and is not answered for that
        finish(room, settled(partition, 0, generation=generation))
        assert position(room, partition) == end - 1
        assert peer.answer(asked) is None

    def test_a_reader_that_goes_on_has_all_of_it_finished_in_the_end(self, room, partition):
        text = "e" + "-" * 3 * AHEAD
        send(room, partition, text)
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        finish(room, settled(partition, 0, generation=generation))
        assert fetch(room, partition, len(text), generation) is None
        assert position(room, partition) == len(text)

    @pytest.mark.parametrize("kind", [messages.Commit, messages.Rollback])
    def test_what_a_prepared_transaction_holds_is_finished_after_its_end(self, room, partition, kind):
        send(room, partition, "ee-e-")
        generation = claim(room, partition)
        finish(room, offsets=[PartitionOffset(partition, 0, generation)])
        prepare(room, settled(partition, 1, 2, generation=generation))
        assert fetch(room, partition, 0, generation) == ([0, 1, 3], 5, "4")
        assert (position(room, partition), finished(room, partition)) == (0, "4")
        peer = room.peer()
        asked = tell(peer, partition, 5, generation)
        end(room, kind)
        assert (position(room, partition), finished(room, partition)) == (
            0,
            "1-2, 4" if kind is messages.Commit else "2, 4",
        )
        assert peer.answer(asked) is None

    def test_after_a_restart_what_could_not_be_finished_is_examined_again(self, room, partition):
        send(room, partition, "e" + "-" * 2 * AHEAD)
        end = 2 * AHEAD + 1
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        room.restart()
        peer = room.peer()
        tell(peer, partition, end, generation)
        finish(room, settled(partition, 0, generation=generation))
        assert position(room, partition) == end

    def test_it_is_not_tried_again_before_something_has_changed(self, room, partition, monkeypatch):
        send(room, partition, "e" + "-" * 2 * AHEAD)
        generation = claim(room, partition)
        fetch(room, partition, 0, generation)
        tried = []
        monkeypatch.setattr(room.broker.fetching.filtering, "settle", lambda *what: tried.append(what))
        peer = room.peer()
        tell(peer, partition, 2 * AHEAD + 1, generation)
        send(room, partition, "---", 200)
        assert tried == []

    def test_an_operator_may_change_the_filter_and_what_was_examined_stays_finished(self, room, partition):
        send(room, partition, "ueu")
        generation = claim(room, partition)
        assert fetch(room, partition, 0, generation) == ([1], 3, "0, 2")
        filter_by(room, "us")
        send(room, partition, "ue", 3)
        assert fetch(room, partition, 3, generation) == ([3], 5, "4")
        assert finished(room, partition) == "2, 4"
        filter_by(room)
        send(room, partition, "-", 5)
        assert fetch(room, partition, 5, generation) == ([5], 6, "")


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


class TestTables:
    """Of full segments a table says where to look."""

    @pytest.fixture
    def room(self):
        return Room()

    @pytest.fixture(autouse=True)
    def always(self, monkeypatch):
        monkeypatch.setattr(tagged_segments, "APART", 1)
        monkeypatch.setattr(tagged_segments, "NEAR", 1)

    @pytest.fixture
    def read(self, monkeypatch):
        """The offsets of the frames that were examined."""
        found, examine = [], tag_filter.filtered

        def noted(frames, offset, wanted):
            found.extend(first for _, _, first, _ in frame.walk(frames))
            return examine(frames, offset, wanted)

        monkeypatch.setattr(tag_filter, "filtered", noted)
        return found

    def fill(self, room, text):
        """Send messages of 10,000 bytes to a topic with segments of six of them."""
        [partition] = room.topic(segment_bytes=64 << 10)
        filter_by(room, "eu")
        for number, letter in enumerate(text):
            send(room, partition, letter, number, size=10_000)
            room.flush()
        return partition

    def test_what_is_between_is_not_read(self, room, read):
        partition = self.fill(room, "--e--" * 6)
        generation = claim(room, partition)
        sealed = room.engine.catalog.stores[partition].sealed_segments[-1].end_offset
        assert sealed == 24
        assert fetch(room, partition, 0, generation)[:2] == ([2], 6)
        assert read == [2]
        found, offset = [2], 6
        while offset < 30:
            numbers, offset, _ = fetch(room, partition, offset, generation, wait=0)
            found += numbers
        assert found == [2, 7, 12, 17, 22, 27]
        assert [each for each in read if each < sealed] == [2, 7, 12, 17, 22]
        assert (position(room, partition), finished(room, partition)) == (
            2,
            "3-6, 8-11, 13-16, 18-21, 23-26, 28-29",
        )

    def test_damage_in_what_is_between_is_not_met_and_at_a_match_it_is_told(self, room):
        partition = self.fill(room, "-e----" + "-e--e-" + "e")
        segments = room.engine.catalog.stores[partition].sealed_segments
        fetch(room, partition, 0, wait=0)
        fetch(room, partition, 6, wait=0)
        frame_bytes = len(tagged(0, size=10_000))
        for segment, place in zip(segments, (3, 4), strict=True):
            file = room.filesystem.open(segment.path)
            write_fully(file, SEGMENT_HEADER_BYTES + place * frame_bytes + 500, [b"oops"])
        assert fetch(room, partition, 0, wait=0) == ([1], 6, "0, 2-5")
        assert fetch(room, partition, 6, wait=0) == ([7], 10, "6, 8-9")
        assert fetch(room, partition, 10, wait=0) == "CorruptSegment"

    def test_what_has_attempts_is_read_though_the_table_does_not_name_it(self, room):
        partition = self.fill(room, "-e--e-" + "e")
        generation = claim(room, partition)
        finish(room, settled(partition, unfinished=[(2, 1, 0, "why")], generation=generation))
        assert fetch(room, partition, 0, generation)[:2] == ([1, 2, 4], 6)

    def test_a_segment_with_many_that_match_is_read_in_a_row(self, room, read, monkeypatch):
        monkeypatch.setattr(tagged_segments, "APART", 30_000)
        partition = self.fill(room, "eee---" + "e")
        assert fetch(room, partition, 0)[:2] == ([0, 1, 2], 6)
        assert read == [0, 1, 2, 3, 4, 5]

    def test_from_its_second_half_on_a_segment_is_read_in_a_row(self, room, read):
        partition = self.fill(room, "e---e-" + "e")
        assert fetch(room, partition, 4)[:2] == ([4], 6)
        assert read == [4, 5]
        assert not room.filesystem.exists(room.engine.catalog.stores[partition].sealed_segments[0].keys_path)

    def test_on_a_full_disk_no_table_is_made(self, room, monkeypatch):
        monkeypatch.setattr(key_tables, "make_table", None)
        partition = self.fill(room, "-e----" + "e")
        room.engine.full_at = 0
        assert fetch(room, partition, 0)[:2] == ([1], 6)

    def test_what_has_any_tag_of_the_filter_is_found(self, room, read):
        partition = self.fill(room, "-e--u--b--" + "e")
        filter_by(room, "eu", "us")
        assert fetch(room, partition, 0)[:2] == ([1, 4], 6)
        assert read == [1, 4]

    @pytest.mark.parametrize("seed", range(20))
    def test_with_tables_the_same_comes_as_without(self, room, seed, monkeypatch):
        draw = random.Random(seed)
        monkeypatch.setattr(tagged_segments, "AT_ONCE", draw.choice([1, 2, 16]))
        monkeypatch.setattr(tagged_segments, "TOGETHER", draw.choice([1, 25_000]))
        text = "".join(draw.choice("eb-----u"[draw.randrange(2) :]) for _ in range(40))
        partition = self.fill(room, text)
        generation = claim(room, partition)
        found, offset = [], 0
        for _ in range(200):
            until = draw.choice([0, 0, offset + draw.randrange(1, 12)])
            numbers, offset, _ = fetch(room, partition, offset, generation, wait=0, until=until)
            found += numbers
            if offset == len(text):
                break
        assert found == [number for number, letter in enumerate(text) if letter in "eb"]
        finish(room, settled(partition, *found, generation=generation))
        assert position(room, partition) == len(text)
